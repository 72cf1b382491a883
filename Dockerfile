# docker build -t dana .                                                          CPU
# docker build -t dana --build-arg TORCH_INDEX=https://download.pytorch.org/whl/cu128 .   CUDA
# docker run --rm -v "$PWD:/work" dana quickstart
FROM python:3.11-slim

ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
ARG EXTRAS=offline

WORKDIR /src
RUN pip install --no-cache-dir --index-url "$TORCH_INDEX" "torch>=2.6,<2.14"
COPY pyproject.toml setup.py MANIFEST.in README.md LICENSE ./
COPY dana dana
COPY recipes recipes
COPY tasks tasks
COPY accelerate_configs accelerate_configs
RUN pip install --no-cache-dir ".[$EXTRAS]"

RUN useradd --create-home user
USER user
WORKDIR /work
ENTRYPOINT ["dana"]
CMD ["--help"]
