# dana 1.0
cat > recipe.yaml <<'RECIPE'
model: some/base
RECIPE
dana score --config recipe.yaml --out again
dana weigh again
dana adapt again
# The settings of each fine-tuning are in tables/settings.csv.
