"""Makes a clean table and a plot of a messy one: two date formats, German numbers, gaps, the same sale twice."""

import hashlib
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd

raw = pd.read_csv("sales.csv", sep=";", dtype=str, skipinitialspace=True)
raw.columns = raw.columns.str.strip().str.lower()

dates = pd.to_datetime(raw["date"], format="%Y-%m-%d", errors="coerce")
dates = dates.fillna(pd.to_datetime(raw["date"], format="%d.%m.%Y", errors="coerce"))
amounts = raw["amount"].str.replace(r"[€\s.]", "", regex=True).str.replace(",", ".")
table = pd.DataFrame(
    {
        "date": dates,
        "region": raw["region"].str.strip().str.lower(),
        "product": raw["product"].str.strip().str.lower(),
        "amount": pd.to_numeric(amounts, errors="coerce"),
    }
)
clean = table.dropna().drop_duplicates().sort_values("date", kind="stable")
clean.to_csv("clean.csv", index=False)

by_region = clean.groupby("region")["amount"].sum()
figure, axes = plt.subplots(figsize=(8, 5), dpi=100)
by_region.plot.bar(ax=axes, title="Sales by region")
axes.set_ylabel("€")
figure.savefig("sales.png")

print(f"{len(raw)} rows, {len(clean)} of them of use")
print(by_region.to_string())
for path in (Path("clean.csv"), Path("sales.png")):
    content = path.read_bytes()
    print(path, len(content), hashlib.sha256(content).hexdigest())
