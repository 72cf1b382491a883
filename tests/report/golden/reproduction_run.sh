# dana 1.0
cat > recipe.yaml <<'RECIPE'
model: some/base
RECIPE
dana run recipe.yaml --out again
