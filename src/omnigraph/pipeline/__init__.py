"""The Spark backend of the engine, the Spark data source, declared pipelines and graph analytics."""
