# The broker: docker build -t ottla . && docker run -p 9092:9092 -v ottla-data:/data ottla
# Three of them, and the etcd that is in the image too: compose.yaml.
# In place of apache/kafka's image: docker build --target kafka -t ottla:kafka .  (docs/image.md)
ARG PYTHON_IMAGE=python:3.13-slim-bookworm

FROM ${PYTHON_IMAGE} AS build
WORKDIR /build
RUN python -m venv /opt/ottla
ENV PATH=/opt/ottla/bin:$PATH
# What Ottla depends on changes less often than Ottla: this layer outlives most builds.
COPY pyproject.toml constraints.txt ./
RUN python -c "import tomllib; project = tomllib.load(open('pyproject.toml', 'rb'))['project']; \
    extras = project['optional-dependencies']; \
    print(*project['dependencies'], *extras['etcd'], *extras['secure'], sep='\n')" > requirements.txt \
    && pip install --no-cache-dir --disable-pip-version-check --constraint constraints.txt --requirement requirements.txt
COPY README.md LICENSE ./
COPY pytest_ottla.py ./
COPY ottla ottla
RUN pip install --no-cache-dir --disable-pip-version-check --no-deps .

# Without what installs packages, makes certificates, or is the client of etcd.
FROM build AS small
RUN pip uninstall --yes aiohttp yarl multidict cryptography cffi pycparser setuptools pip

# In place of apache/kafka and confluentinc/cp-kafka: their variables, paths and scripts, and no entry point, for
# programs that start containers set the command alone.
FROM ${PYTHON_IMAGE} AS kafka
RUN useradd --uid 1000 --user-group --create-home --shell /bin/bash appuser
COPY --from=small /opt/ottla /opt/ottla
ENV PATH=/opt/ottla/bin:$PATH PYTHONUNBUFFERED=1
COPY --chown=appuser:appuser image/etc /etc
COPY image/bin/kafka-tool /opt/kafka/bin/kafka-tool
RUN install --directory --owner appuser --group appuser /etc/kafka /etc/kafka/secrets /etc/confluent/docker \
        /var/lib/kafka /var/lib/kafka/data /mnt/shared/config /opt/kafka/config /usr/logs \
    && for tool in $(python -m ottla.cli.kafka_image names); do \
        ln -s kafka-tool "/opt/kafka/bin/$tool.sh"; ln -s /opt/kafka/bin/kafka-tool "/usr/local/bin/$tool"; \
    done
USER appuser
WORKDIR /home/appuser
EXPOSE 9092 9098
CMD ["/etc/kafka/docker/run"]

FROM ${PYTHON_IMAGE} AS ottla
RUN apt-get update && apt-get install --yes --no-install-recommends etcd-server && rm -rf /var/lib/apt/lists/*
RUN useradd --system --uid 10001 --user-group --home-dir /data --no-create-home --shell /usr/sbin/nologin ottla \
    && install --directory --owner ottla --group ottla /data \
    && install --directory --owner ottla --group ottla --mode 700 /secure
COPY --from=build /opt/ottla /opt/ottla
ENV PATH=/opt/ottla/bin:$PATH PYTHONUNBUFFERED=1
# A number, so that an orchestrator can see that it is not root's.
USER 10001:10001
WORKDIR /data
VOLUME /data
EXPOSE 9092 9644
# Whether the broker is ready. One that was started without an admin listener (status 3) is asked for its API versions.
# Before it has been ready once it may take as long as recovery does: who replaces unhealthy containers must not end that.
HEALTHCHECK --interval=10s --timeout=5s --start-period=600s --retries=3 \
    CMD ottla health --url http://127.0.0.1:9644 || { [ $? -eq 3 ] && ottla ping --bootstrap 127.0.0.1:9092 --request-timeout 3; }
ENTRYPOINT ["ottla"]
# Clients on this machine reach the published port. Others need another address: give the whole command with it.
CMD ["serve", "--listen", "0.0.0.0:9092", "--advertise", "127.0.0.1:9092", "--data-dir", "/data", \
    "--admin", "0.0.0.0:9644"]
