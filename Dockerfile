# docker build -t clusterwright .
# docker run --rm clusterwright plan llama3-70b --cluster dgx-h100:16
# docker run --rm -v "$PWD:/plans" -u "$(id -u):$(id -g)" clusterwright plan llama3-70b --cluster dgx-h100:16 -o plan.json
FROM python:3.13-slim@sha256:7c61056e61ac89e852de05f3dc6fa51a6dd2181797bceed46aa725dd7cb2cd3b AS build
COPY . /source
RUN python -m venv /opt/clusterwright && /opt/clusterwright/bin/pip install --no-cache-dir --no-compile /source

FROM python:3.13-slim@sha256:7c61056e61ac89e852de05f3dc6fa51a6dd2181797bceed46aa725dd7cb2cd3b
COPY --from=build /opt/clusterwright /opt/clusterwright
RUN useradd --create-home --uid 1000 planner && mkdir /plans && chown planner /plans
USER 1000
WORKDIR /plans
ENV PATH=/opt/clusterwright/bin:$PATH
ENTRYPOINT ["clusterwright"]
CMD ["--help"]
