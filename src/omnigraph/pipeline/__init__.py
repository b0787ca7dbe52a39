"""The Spark backend of the engine, the Spark data source, pipelines declared in files, and graph analytics."""
