# docker build -t clusterwright .
# docker run --rm clusterwright plan llama3-70b --cluster dgx-h100:16
# docker run --rm -v "$PWD:/plans" -u "$(id -u):$(id -g)" clusterwright plan llama3-70b --cluster dgx-h100:16 -o plan.json
FROM python:3.13-slim@sha256:7c61056e61ac89e852de05f3dc6fa51a6dd2181797bceed46aa725dd7cb2cd3b AS build
COPY . /source
# Nothing is installed, and nothing builds the wheel, but what the lock files name by its hash.
RUN pip install --no-cache-dir --require-hashes -r /source/requirements/release.txt \
    && python -m build --no-isolation --wheel --outdir /wheel /source
RUN python -m venv /opt/clusterwright \
    && /opt/clusterwright/bin/pip install --no-cache-dir --no-compile --require-hashes -r /source/requirements/image.txt \
    && /opt/clusterwright/bin/pip install --no-cache-dir --no-compile --no-deps /wheel/*.whl

FROM python:3.13-slim@sha256:7c61056e61ac89e852de05f3dc6fa51a6dd2181797bceed46aa725dd7cb2cd3b
COPY --from=build /opt/clusterwright /opt/clusterwright
RUN useradd --create-home --uid 1000 planner && mkdir /plans && chown planner /plans
USER 1000
WORKDIR /plans
ENV PATH=/opt/clusterwright/bin:$PATH
ENTRYPOINT ["clusterwright"]
CMD ["--help"]
