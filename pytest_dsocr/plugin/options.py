"""Table of all options: their names, the readers of their values, and their help texts.

pytest loads this in every run, so this imports only options and errors. Help texts repeat the valid words. A
test compares them with the words that the readers accept.
"""

from collections import ChainMap

from pytest_dsocr.plugin.option import Option

SPREAD = "--numprocesses=auto"
"""Argument that ``dsocr compare`` adds if the user gives pytest no arguments. Its exact form marks it as ours."""


def _switch(name: str, text: str) -> Option:
    return Option(name, text, reader="yes_or_no")


def _limit(name: str, text: str, default_s: str) -> Option:
    return Option(name, text, "SECONDS", default_s, reader="seconds")


def _of_reference(name: str, text: str, metavar: str = "NAME") -> Option:
    return Option(f"reference_{name}", text, metavar, unset="the subject's, or that of the nearest recording")


OPTIONS = (
    Option(
        "subject",
        "implementation under test: engine, engine:fast, vendor:FOLDER, fork:FOLDER, package.module:factory, "
        "processor:package.module:Class, cli:COMMAND, dump:FOLDER, dump:COMMAND, or http://HOST:PORT/v1?model=NAME",
        "SUBJECT",
        default="engine",
    ),
    _switch("isolate", "run the subject in a process of its own, so that a crash costs one case"),
    _limit(
        "subject_time_limit", "longest that one call of the subject may take: reading a page, a stage, a step", "3600"
    ),
    _limit(
        "start_limit",
        "longest that a side may take to start and load: the subject, or a live reference without a sign of progress",
        "1800",
    ),
    Option(
        "checkpoint",
        "weights: mini (embedded), a checkpoint's folder, synthetic:NAME (random), or a hub name in the local cache",
        "CHECKPOINT",
        default="mini",
    ),
    Option(
        "model",
        "model of the weights: deepseek_ocr, unlimited_ocr, deepseek_ocr2",
        "MODEL",
        unset="the model in the checkpoint's config",
    ),
    Option(
        "reference",
        "what the subject is compared with: recorded, engine (where nothing is recorded), a folder with the vendor's "
        "Python files to run live, or a folder of recordings",
        "REFERENCE",
        default="recorded",
    ),
    Option(
        "kept_answers",
        "folder in which the engine's answers as a reference are kept for later runs; off keeps and uses none",
        "FOLDER|off",
        unset="in the user's cache; with --dsocr-isolate, off",
    ),
    Option(
        "vendor_env",
        "environment in which the vendor's code runs",
        "FOLDER",
        unset="the one that dsocr vendor setup made",
        reader="present_folder",
    ),
    _limit("time_limit", "longest that a live reference may go without a sign of progress", "600"),
    Option(
        "pages",
        "image, folder of images, list file, PDF, or shipped pages: invoice_016, dev-3, dev-20, typeset, all",
        "PAGES",
        default="dev-3",
        collect=tuple,
        reader="page",
    ),
    Option(
        "shard",
        "run only part I of N: every N-th page from page I on; tests without a page are in the first part",
        "I/N",
        unset="all pages",
    ),
    Option(
        "presets",
        "tiny, small, base, large, gundam or lossy640",
        "PRESET",
        default="gundam",
        collect=tuple,
        reader="preset",
    ),
    Option(
        "prompts",
        "markdown, ocr, free, figure, describe, pages, or a text with <image> in it",
        "PROMPT",
        default="markdown",
        collect=tuple,
        reader="prompt",
    ),
    Option(
        "repeat",
        "readings of each page by one process, after itself and others; 149 show a fault in one of 50 at 95 per cent",
        "READINGS",
        default="1",
        reader="times",
    ),
    Option(
        "max_new_tokens", "stop after this many tokens", "TOKENS", unset="as many as the vendor's code", reader="tokens"
    ),
    Option("device", "the subject's device: cpu, cuda or cuda:N", "DEVICE", default="cpu"),
    Option("dtype", "the subject's dtype: float32, bfloat16, float16", "DTYPE", default="float32"),
    Option("attention", "the subject's attention: eager, sdpa, flash_attention_2", default="eager"),
    _of_reference(
        "device", "the reference's device: cpu, cuda, cuda:N, or that of a recording, such as nvidia-h200", "DEVICE"
    ),
    _of_reference("dtype", "the reference's dtype: float32, bfloat16", "DTYPE"),
    _of_reference("attention", "the reference's attention: eager, flash_attention_2"),
    Option(
        "tolerances",
        "how far the two sides may differ, such as boxes=1, coords=0.02 or seam=1e-3",
        "NAME=VALUE",
        unset="by dtype, device and attention",
        collect=dict,
        reader="tolerance",
    ),
    Option(
        "quantization_budget",
        "loss allowed to a port in fewer bits: int8, fp8, int4, or NAME=VALUE of kl, tokens, boxes, characters, pages",
        "PRECISION|NAME=VALUE",
        unset="the budget of the precision that the subject declares, if any",
        collect=lambda tables: dict(ChainMap(*reversed(tables))),
    ),
    Option(
        "max_slowdown",
        "how much slower than its baseline a stage may be, such as decode=0.05, or 0.05 for each",
        "STAGE=SHARE",
        unset="0.05, and half a per cent of the page",
        collect=dict,
    ),
    Option("max_rounds", "most rounds that are timed before a stage is called AMBIGUOUS", "ROUNDS", "48"),
    _switch("baseline_update", "accept the times of this run as the baseline of this machine"),
    Option("baseline_days", "greatest age of a baseline in days", "DAYS", "180", reader="days"),
    Option(
        "allow_missing",
        "what is allowed to be missing without failing the run: baseline, gpu, recording, snapshot, timings, vendor",
        unset="nothing",
        collect=frozenset,
    ),
    Option(
        "explain",
        "CPU seconds to search for the cause of a failure, at the first case of each stage; 0 turns it off",
        "SECONDS",
        default="20",
        reader="seconds_or_none",
    ),
    Option(
        "level",
        "level that the subject must offer, L0 to L3; tests above it are not run",
        "LEVEL",
        unset="what the subject offers",
    ),
    _switch("no_skip", "turn every skipped test into a failure, except what --dsocr-allow-missing allows"),
    Option(
        "out",
        "folder for dsocr.json, index.html and pictures of each page with both sides' boxes",
        "FOLDER",
        unset="nothing is written",
        reader="folder",
    ),
    Option(
        "golden",
        "folder with vendor/ (recordings), snapshots/ and baselines/",
        "FOLDER",
        unset="./golden, or else the shipped one",
        reader="folder",
    ),
    Option(
        "xfails",
        "file of tests that must keep failing while listed (strict xfail), a line each: NODEID  # until DATE: reason",
        "FILE",
        unset="none",
        reader="ledger",
    ),
)
[OUT] = [option for option in OPTIONS if option.name == "out"]
