"""Topics kept clean by Airflow 3: every job in turn, every quarter of an hour. What one of them can't do keeps none of
the others, and the run has failed all the same.

Retention, offsets and vacuum run on an Airflow worker, where lakelog is installed; compaction and merging go to the
cluster of the connection `spark_default`. Fill in the warehouse and where compaction_jobs lies.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.providers.standard.operators.bash import BashOperator
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG

WAREHOUSE = "s3://my-bucket/lakelog"
COMPACTION_JOBS = "/opt/lakelog/compaction_jobs/__main__.py"

with DAG(
    dag_id="lakelog_jobs",
    schedule="*/15 * * * *",
    start_date=datetime(2026, 1, 1),
    catchup=False,
    max_active_runs=1,
    # What one run leaves undone is taken up by the next.
    default_args={"retries": 0, "execution_timeout": timedelta(hours=6)},
):
    retention = BashOperator(task_id="retention", bash_command=f"lakelog jobs run retention --warehouse {WAREHOUSE}")
    on_spark = SparkSubmitOperator(
        task_id="compaction_and_merge",
        application=COMPACTION_JOBS,
        application_args=["run", "compaction", "merge", "--warehouse", WAREHOUSE],
        conn_id="spark_default",
        name="lakelog-jobs",
        trigger_rule="all_done",
    )
    vacuum = BashOperator(
        task_id="offsets_and_vacuum",
        bash_command=f"lakelog jobs run offsets vacuum --warehouse {WAREHOUSE}",
        trigger_rule="all_done",
    )
    # A run has failed if one of its leaves has, and the last job may go well after one that did not.
    everything = EmptyOperator(task_id="everything_went_well", trigger_rule="all_success")
    retention >> on_spark >> vacuum
    [retention, on_spark, vacuum] >> everything
