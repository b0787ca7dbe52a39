"""The Spark session, jobs, staging and shuffle. The other packages of the pipeline use these."""
