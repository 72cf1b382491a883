#!/bin/bash
# Answer the questions of benchmarks/evidence on one GPU, as far as the minutes allow: a stage of run.sh.
# Rows of an earlier call, in docs/results/evidence-gpu, are not made again. All rows, and these, go to
# $OUT/evidence-gpu. DRY=1 adapts by two steps on little text, on any device.
set -eu
PYTHON=${PYTHON:-python3}
PACK=${PACK:-.gpu}
WORK=${WORK:-/tmp/evidence}
RESULTS=$OUT/evidence-gpu
limits=(--minutes "${MINUTES:-6}" --jobs "${JOBS:-12}")
texts=()
if [ "${DRY:-0}" = 1 ]; then
  limits=(--minutes 60 --jobs 1 --dry)
  texts=(--texts 200)
elif [ -d docs/results/evidence-gpu ] && [ ! -d "$RESULTS" ]; then
  cp -r docs/results/evidence-gpu "$RESULTS"
fi
export OMP_NUM_THREADS=1 TOKENIZERS_PARALLELISM=false
"$PYTHON" benchmarks/evidence/packing.py "$PACK/evidence.tar.xz" "$WORK" "${texts[@]}"
read -r -a questions < "$PACK/questions.txt" || true
"$PYTHON" benchmarks evidence "$WORK" --results "$RESULTS" --questions "${questions[@]}" "${limits[@]}"
