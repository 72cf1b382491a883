# dana 1.0
cat > recipe.yaml <<'RECIPE'
model: some/base
RECIPE
dana score --config recipe.yaml --out again
dana weigh again --config recipe.yaml --set weigh.beta=0.3 weigh.budget=null
dana adapt again --config recipe.yaml
# The settings of each fine-tuning are in tables/settings.csv.
