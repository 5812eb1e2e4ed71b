// Counts the words of its standard input, the most frequent first.

const { createInterface } = require("node:readline");

const counts = new Map();
const lines = createInterface({ input: process.stdin });
lines.on("line", (line) => {
  for (const [word] of line.toLowerCase().matchAll(/\p{Letter}+/gu)) {
    counts.set(word, (counts.get(word) ?? 0) + 1);
  }
});
lines.on("close", () => {
  const words = [...counts].sort(([a, m], [b, n]) => n - m || a.localeCompare(b));
  for (const [word, count] of words.slice(0, 5)) console.log(`${count} ${word}`);
});
