"""`lakelog demo`: a short tour on data that it makes up: produce, fetch, follow live, query the topic as a table.

It runs a gateway of its own in a temporary directory, talks to it as any client does, and leaves nothing behind.
"""

from __future__ import annotations

import random
import tempfile
import threading
import time
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from lakelog.client import LakelogClient, Record
from lakelog_cli.called import own_command
from lakelog_cli.local_gateway import LocalGateway
from lakelog_cli.output import human_bytes, stdout

TOPIC = "rides"
PARTITIONS = 3
LIVE_RIDES_PER_SECOND = 25
STATIONS = ("Harbour", "Old Mill", "University", "Market Hall", "Zoo", "Central", "Lakeside", "Opera")
# More people leave from some places than from others.
WEIGHTS = (5, 2, 8, 7, 3, 12, 4, 3)
SHOWN = 6


class City:
    """Makes up rides on hired bikes. The same seed makes the same rides."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def ride(self) -> Record:
        (start,) = self._random.choices(STATIONS, WEIGHTS)
        end = self._random.choice([station for station in STATIONS if station != start])
        bike = f"bike-{self._random.randrange(400):03d}"
        minutes = max(2, round(self._random.gauss(17, 8)))
        ride = {"bike": bike, "from": start, "to": end, "minutes": minutes, "price": round(1 + 0.18 * minutes, 2)}
        # By bike, so that the rides of one bike stay in order.
        return Record(ride, key=bike)

    def pause_s(self) -> float:
        """Until the next ride: people come as they like."""
        return self._random.expovariate(LIVE_RIDES_PER_SECOND)


def demo(
    rides: Annotated[
        int, typer.Option("--records", min=1, help="How many rides there are before it gets live.")
    ] = 50_000,
    live_rides: Annotated[int, typer.Option("--live", min=1, help="How many rides are followed live.")] = 100,
) -> None:
    """Take a short tour: produce, fetch, follow live, and query the topic as a Delta table."""
    console = stdout()
    with tempfile.TemporaryDirectory(prefix="lakelog-demo-") as folder:
        warehouse = Path(folder) / "warehouse"
        _chapter(console, "1. A gateway", "lakelog serve --warehouse DIR")
        gateway = LocalGateway(warehouse, Path(folder) / "gateway.log", {"access_log": "off"})
        with ExitStack() as until_done:
            with console.status("starting a gateway of our own …"):
                until_done.enter_context(gateway)
            client = until_done.enter_context(LakelogClient(gateway.url))
            console.print(f"It serves [bold]{warehouse}[/] on [bold]{gateway.url}[/].")
            city = City(seed=7)
            _produce(console, client, city, rides)
            _fetch(console, client)
            _follow(console, client, city, live_rides)
            _query(console, client, warehouse / TOPIC)
    console.print()
    console.print(Rule(style="dim"))
    console.print("That was it, and everything is cleaned up. To go on with a gateway of your own:")
    command = own_command()
    for line in (
        f"{command} serve --warehouse ./data",
        f"echo hello | {command} produce greetings",
        f"{command} consume greetings",
    ):
        console.print(Text(f"  {line}", style="bold"), soft_wrap=True)


def _chapter(console: Console, title: str, command: str) -> None:
    console.print()
    console.print(Rule(f"[bold cyan]{title}[/]", align="left", style="dim"))
    console.print(f"[dim]$ {command}[/]", highlight=False)


def _produce(console: Console, client: LakelogClient, city: City, rides: int) -> None:
    _chapter(console, "2. Produce", f"lakelog produce {TOPIC} --json-lines")
    client.create_topic(TOPIC, PARTITIONS)
    started = time.perf_counter()
    with console.status("people ride bikes …"), client.producer(TOPIC) as producer:
        for _ in range(rides):
            producer.send_record(city.ride())
    seconds = time.perf_counter() - started
    info = client.describe_topic(TOPIC)
    console.print(
        f"{rides:,} rides made up, sent and committed to {PARTITIONS} partitions in {seconds:.1f} s: "
        f"{rides / seconds:,.0f} a second, {human_bytes(info.bytes)} of Parquet."
    )


def _fetch(console: Console, client: LakelogClient) -> None:
    _chapter(console, "3. Fetch", f"lakelog consume {TOPIC} --max-messages {SHOWN} --verbose")
    fetched = client.fetch(TOPIC).head(SHOWN)
    table = _table("place", "from", "to", "minutes", rows=[])
    for record in fetched:
        ride = record.json()
        table.add_row(f"{record.partition}:{record.offset}", ride["from"], ride["to"], str(ride["minutes"]))
    console.print(table)


def _follow(console: Console, client: LakelogClient, city: City, live_rides: int) -> None:
    _chapter(console, "4. Follow, live", f"lakelog consume {TOPIC} --follow")
    here = client.offsets_at(TOPIC, "latest")
    departures: Counter[str] = Counter()
    latest: deque[dict[str, Any]] = deque(maxlen=SHOWN)
    delays_ms: list[float] = []

    def picture() -> RenderableType:
        newest = _table("bike", "from", "to", rows=[(ride["bike"], ride["from"], ride["to"]) for ride in latest])
        longest = max(departures.values(), default=1)
        bars = _table(
            "station",
            "departures",
            rows=[
                (name, f"[green]{'█' * max(1, 30 * count // longest)}[/] {count}")
                for name, count in departures.most_common(SHOWN)
            ],
        )
        return Group(newest, Text(), bars)

    with _riding(client, city), Live(console=console, auto_refresh=False, transient=not console.is_terminal) as live:
        for record in client.stream(TOPIC, positions=here, max_records=live_rides):
            delays_ms.append(time.time() * 1000 - record.timestamp_ms)
            ride = record.json()
            departures[ride["from"]] += 1
            latest.append(ride)
            if console.is_terminal:
                live.update(picture(), refresh=True)
    if not console.is_terminal:
        console.print(picture())
    median_ms = sorted(delays_ms)[len(delays_ms) // 2]
    console.print(f"{live_rides} rides seen, half of them within {median_ms:.0f} ms of being sent.")


@contextmanager
def _riding(client: LakelogClient, city: City) -> Iterator[None]:
    """People go on riding while the block runs."""
    enough = threading.Event()

    def ride() -> None:
        with client.producer(TOPIC, linger_ms=0) as producer:
            while not enough.wait(city.pause_s()):
                ride = city.ride()
                producer.send(ride.value, ride.key, timestamp=int(time.time() * 1000))

    riders = threading.Thread(target=ride, name="riders")
    riders.start()
    try:
        yield
    finally:
        enough.set()
        riders.join()


def _query(console: Console, client: LakelogClient, table: Path) -> None:
    _chapter(console, "5. Query: the topic is a Delta table", f'polars.scan_delta("{table}")')
    try:
        import polars

        # Only here it turns out whether deltalake is there too.
        frame = polars.scan_delta(str(table))
    except ImportError:
        console.print("With polars and deltalake installed, this would be a query of the table that you just wrote.")
        return
    value = polars.col("value").cast(polars.String)
    ways = (
        frame.select(
            value.str.json_path_match("$.from").alias("from"),
            value.str.json_path_match("$.to").alias("to"),
            value.str.json_path_match("$.minutes").cast(polars.Int64).alias("minutes"),
            value.str.json_path_match("$.price").cast(polars.Float64).alias("price"),
        )
        .group_by("from", "to")
        .agg(polars.len().alias("rides"), polars.col("minutes").mean(), polars.col("price").sum())
        .sort("rides", "from", "to", descending=[True, False, False])
    )
    started = time.perf_counter()
    answer = ways.collect()
    seconds = time.perf_counter() - started
    console.print(
        _table(
            "from",
            "to",
            "rides",
            "minutes",
            "income",
            rows=[
                (start, end, f"{rides:,}", f"{minutes:.1f}", f"{price:,.2f}")
                for start, end, rides, minutes, price in answer.head(SHOWN).iter_rows()
            ],
        )
    )
    total, info = answer["rides"].sum(), client.describe_topic(TOPIC)
    files = sum(each.segments for each in info.partitions)
    console.print(
        f"All {total:,} rides in {seconds:.2f} s, from {files} files at version {info.table_version} of the table; "
        "no export, no connector, no second copy."
    )


def _table(*columns: str, rows: list[tuple[str, ...]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    for column in columns:
        table.add_column(column, no_wrap=True)
    for row in rows:
        table.add_row(*row)
    return table


def register(app: typer.Typer) -> None:
    app.command()(demo)
