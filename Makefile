# Thin: each target is a script in scripts/, which says what it does and what is missing.

.PHONY: help demo test test-long test-hostile test-python test-mcp test-frameworks fuzz kills lint bench image images services clean

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | expand -t 16

demo: ## build mayfly, run a first job in a sandbox, read its record back
	@scripts/demo

test: ## every test that this machine can run
	@scripts/test

test-long: ## the same with the long tests and many more random cases
	@scripts/test --long

test-hostile: ## the hostile battery on runc and gVisor, as a table in docs/hostile-battery.md
	@scripts/hostile

test-python: ## the Python client, on a server of its own and the real engine
	@scripts/test-python-client

test-mcp: ## the tools for models, as the official MCP client gets them
	@scripts/test-mcp

test-frameworks: ## the sandbox as a tool of agent frameworks, with a scripted model
	@scripts/test-frameworks

fuzz: ## the fuzz targets, 30 minutes each and two at once (1.5 hours)
	@scripts/fuzz 1800

kills: ## a fleet of real processes under kills, 2,000 jobs, as figures
	@scripts/fleet-under-kills

lint: ## format, clippy, documentation, dependencies, shell scripts
	@scripts/lint

bench: ## measure on this machine, and make docs/performance.md of it
	@scripts/performance

image: ## build the python image from Debian packages and load it
	@deploy/images/python/build --engine-load

images: ## build mayfly, then the images of a fleet from Debian packages, load them, name them in .env
	cargo build --locked --release
	@deploy/images/services

services: ## start a PostgreSQL and a RabbitMQ for tests, print their addresses
	@scripts/services start

clean: ## remove what was built here (images already loaded stay in the engine)
	cargo clean
	rm -rf .cache
