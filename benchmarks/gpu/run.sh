#!/bin/bash
# Run the stages, each with a limit of its own, and print their results as tables.
# On a machine with one GPU, in the project's root: bash .gpu/queue/run.sh. Under eight minutes.
# Results lie in $OUT. QUEUE, PYTHON and INSTALL are set by `python benchmarks gpu`.
set -u
export PYTHONUNBUFFERED=1 HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=true
export OUT=${OUT:-/tmp/out} SITE=${SITE:-/tmp/site}
QUEUE=${QUEUE:-.gpu/queue}
PYTHON=${PYTHON:-python3}
mkdir -p "$OUT"
export PYTHONPATH=$PWD
if [ "${INSTALL:-1}" = 1 ]; then
  "$PYTHON" -m pip install -q --no-index --no-deps --no-compile --no-cache-dir --upgrade \
    --target "$SITE" .gpu/whl/*.whl || exit 1
  PYTHONPATH=$SITE:$PWD/.gpu/site:$PWD
fi

nvidia-smi --query-gpu=name,memory.total,driver_version --format=csv,noheader 2>/dev/null
nproc
"$PYTHON" - <<'END'
from importlib.metadata import version

print(*(version(name) for name in ("torch", "transformers", "accelerate", "numpy")))
END

# stage NAME SECONDS COMMAND: the log goes to $OUT/NAME.txt, its last lines are printed.
failures=0
stage() {
  local name=$1 limit=$(($2 * ${SLOW:-1}))
  shift 2
  echo "## $name $(date +%T)"
  timeout "$limit" "$@" > "$OUT/$name.txt" 2>&1
  local code=$?
  tail -n 2 "$OUT/$name.txt" | cut -c1-300
  if [ $code != 0 ]; then
    echo "exit code $code"
    failures=$((failures + 1))
  fi
}

for what in ${STAGES:-correct bert modernbert mini minilm score seeds tests}; do
  case $what in
    correct) stage correct 50 "$PYTHON" "$QUEUE/correct.py" ;;
    bert) stage bert 120 "$PYTHON" "$QUEUE/speed.py" bert ;;
    modernbert) stage modernbert 100 "$PYTHON" "$QUEUE/speed.py" modernbert ;;
    mini) stage mini 40 "$PYTHON" "$QUEUE/speed.py" mini ;;
    minilm) stage minilm 40 "$PYTHON" "$QUEUE/speed.py" minilm ;;
    score) stage score 40 "$PYTHON" "$QUEUE/score.py" ;;
    seeds) stage seeds 50 "$PYTHON" "$QUEUE/seeds.py" ;;
    tests) stage tests 40 "$PYTHON" -m pytest -q -m gpu -p no:cacheprovider tests/test_on_devices.py \
      tests/train/test_layouts.py tests/train/test_waits.py tests/encoders/test_batches.py ;;
    evidence) stage evidence 490 bash "$QUEUE/evidence.sh" ;;
    *) echo "no such stage: $what"; exit 2 ;;
  esac
done
if [ -f "$OUT/results.jsonl" ]; then
  "$PYTHON" "$QUEUE/table.py" "$OUT" | tee "$OUT/table.txt"
fi
date +%T
exit $failures
