"""Data sets with the file formats of well-known public ones, with generated content."""

from __future__ import annotations

import csv
import random
from collections.abc import Callable, Iterable, Sequence
from datetime import date, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet

from omnigraph.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class DataSet:
    """A data set.

    Attributes:
        write: writes the files into a directory.
        nodes: number of nodes by the type that is to be inferred.
        edges: number of edges by type.
        columns: names for the columns of files without a header.
        format: the format of the files, if their names do not give it.
    """

    write: Callable[[Path], None]
    nodes: dict[str, int]
    edges: dict[str, int]
    columns: dict[str, list[str]]
    format: str | None = None


def _rows(path: Path, header: Sequence[str] | None, rows: Iterable[Sequence[object]], **style: object) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n", **style)  # type: ignore[arg-type]
        if header is not None:
            writer.writerow(header)
        writer.writerows(rows)


def _movies(directory: Path) -> None:
    """MovieLens: ratings and tags of users, who have no file."""
    chance = random.Random(1)
    movies = [
        (i * 3, f"Title {i}, The ({1950 + i % 70})", chance.choice(["Drama", "Comedy|Drama", "(no genres listed)"]))
        for i in range(1, 101)
    ]
    _rows(directory / "movies.csv", ["movieId", "title", "genres"], movies)
    ratings = [(u, chance.choice(movies)[0], chance.choice([0.5, 3.0, 4.5]), 964982703 + u) for u in range(1, 41)] * 2
    ratings = [(u, m, r, t + i) for i, (u, m, r, t) in enumerate(ratings)]
    _rows(directory / "ratings.csv", ["userId", "movieId", "rating", "timestamp"], ratings)
    tags = [(u % 7 + 1, movies[u % 50][0], f"tag, {u}" if u % 3 else "fun", 1445714994 + u) for u in range(60)]
    _rows(directory / "tags.csv", ["userId", "movieId", "tag", "timestamp"], tags)
    links = [(m, f"{m:07d}", m * 7 if m % 5 else "") for m, _, _ in movies]
    _rows(directory / "links.csv", ["movieId", "imdbId", "tmdbId"], links)


def _flights(directory: Path) -> None:
    r"""OpenFlights: no header, texts in quotes, `\N` for null."""
    chance = random.Random(2)

    def line(*cells: object) -> str:
        return ",".join("\\N" if c is None else f'"{c}"' if isinstance(c, str) else str(c) for c in cells)

    airports = [
        line(
            number,
            f"Airport {number}",
            f"City, {number % 30}",
            "Papua New Guinea",
            f"A{number:02d}" if number % 4 else None,
            f"AY{number:02d}",
            round(-6 + number / 7, 6),
            145.391998,
            number * 10,
            10 if number % 5 else None,
            "U",
            "Pacific/Port_Moresby" if number % 6 else None,
            "airport",
            "OurAirports",
        )
        for number in range(1, 81)
    ]
    (directory / "airports.dat").write_text("\n".join(airports) + "\n", encoding="utf-8")
    routes = [
        line(
            f"{chance.choice('ABC')}{i % 9}",
            i % 30 if i % 11 else None,
            f"A{i % 50:02d}",
            chance.randint(1, 80),
            f"A{i % 70:02d}",
            chance.randint(1, 80),
            "Y" if i % 8 == 0 else "",
            i % 2,
            "CR2 320",
        )
        for i in range(300)
    ]
    (directory / "routes.dat").write_text("\n".join(routes) + "\n", encoding="utf-8")


_AIRPORT = ["airport_id", "name", "city", "country", "iata", "icao", "latitude", "longitude", "altitude"]
_AIRPORT += ["timezone", "dst", "tz", "type", "source"]
_ROUTE = ["airline", "airline_code", "source_code", "source_airport_id", "dest_code", "dest_airport_id"]
_ROUTE += ["codeshare", "stops", "equipment"]


def _shop(directory: Path) -> None:
    """Northwind: orders with lines, employees who report to employees, semicolons, prices and dates."""
    chance = random.Random(3)
    style = {"delimiter": ";"}
    customers = [(f"C{i:03d}", f"Company {i}", "Berlin" if i % 2 else "") for i in range(30)]
    _rows(directory / "customers.csv", ["customer_id", "company_name", "city"], customers, **style)
    employees = [(i, f"Name {i}", "NULL" if i == 1 else 1 + i // 3, f"{i + 1:02d}.05.1970") for i in range(1, 10)]
    _rows(directory / "employees.csv", ["employee_id", "last_name", "reports_to", "birth_date"], employees, **style)
    products = [(i, f"Product {i}", chance.choice(["Drinks", "Food"]), f"{i}.50", i % 3 == 0) for i in range(1, 41)]
    header = ["product_id", "product_name", "category", "unit_price", "discontinued"]
    _rows(directory / "products.csv", header, products, **style)
    orders = []
    for i in range(10248, 10348):
        ordered = date(1996, 7, 4) + timedelta(i - 10248)
        shipped = "" if i % 9 == 0 else ordered + timedelta(3)
        customer = f"C{i % 30:03d}" if i % 10 else ""
        orders.append((i, customer, i % 9 + 1, ordered, shipped, f"{i / 7:.2f}"))
    header = ["order_id", "customer_id", "employee_id", "order_date", "shipped_date", "freight"]
    _rows(directory / "orders.csv", header, orders, **style)
    lines = [(order[0], product, product % 5 + 1, 0.05) for order in orders for product in (1 + order[0] % 20, 33)]
    _rows(directory / "order_details.csv", ["order_id", "product_id", "quantity", "discount"], lines, **style)
    parcels = [(order[0], number, f"T-{order[0]}-{number}" * (number % 2)) for order in orders for number in (1, 2)]
    _rows(directory / "parcels.csv", ["order_id", "parcel_no", "note"], parcels, **style)


def _citations(directory: Path) -> None:
    """A citation network: papers in Parquet, and citations in a file with tabs."""
    papers = {
        "paper_id": [f"10.1000/{i}" for i in range(200)],
        "title": [f'On "{i}"' for i in range(200)],
        "year": pa.array([1990 + i % 30 if i % 7 else None for i in range(200)], pa.int16()),
        "keywords": [["graphs", f"k{i % 5}"] if i % 3 else None for i in range(200)],
        "published": pa.array([date(2001, 1, 1) + timedelta(i) for i in range(200)]),
        "venue": ["VLDB" if i % 2 else "SIGMOD" for i in range(200)],
        "embedding": pa.array([[i / 200, 0.5, 0.25] for i in range(200)], pa.list_(pa.float32(), 3)),
    }
    pa.parquet.write_table(pa.table(papers), directory / "papers.parquet")
    cites = sorted({(f"10.1000/{i}", f"10.1000/{i * 7 % 200}") for i in range(200)} - {("10.1000/0", "10.1000/0")})
    _rows(directory / "citations.tsv", ["citing", "cited"], cites, delimiter="\t")


def _social(directory: Path) -> None:
    """LDBC: vertical bars, times with an offset, lists with semicolons, and a header with a name twice."""
    style = {"delimiter": "|"}
    people = [
        (
            10**9 + i,
            f"First{i}",
            "Zoë|Ann"[: i % 4],
            "female" if i % 2 else "male",
            f"19{50 + i % 50}-0{i % 9 + 1}-11",
            f"2010-02-14T15:32:1{i % 10}.447+0000",
            f"10.0.0.{i}",
            "Firefox" if i % 3 else "Internet Explorer",
            "en;fr",
        )
        for i in range(60)
    ]
    header = ["id", "firstName", "lastName", "gender", "birthday", "creationDate", "locationIP", "browserUsed"]
    _rows(directory / "person_0_0.csv", [*header, "language"], people, **style)
    knows = [(people[i][0], people[(i * 7 + 1) % 60][0], people[i][5]) for i in range(60)]
    _rows(directory / "person_knows_person_0_0.csv", ["Person.id", "Person.id", "creationDate"], knows, **style)
    posts = [(5 * 10**9 + i, f"text {i}; more", people[i % 60][5], people[i % 17][0]) for i in range(90)]
    _rows(directory / "post_0_0.csv", ["id", "content", "creationDate", "CreatorPersonId"], posts, **style)
    likes = [(people[i % 60][0], posts[i][0], posts[i][2]) for i in range(90)]
    _rows(directory / "person_likes_post_0_0.csv", ["PersonId", "PostId", "creationDate"], likes, **style)


def _films(directory: Path) -> None:
    r"""IMDb: tabs, `\N` for null, quotes that are a part of the texts, and several tables with the same key."""

    def table(name: str, header: str, rows: Iterable[Sequence[object]]) -> None:
        lines = ["\t".join("\\N" if cell is None else str(cell) for cell in row) for row in rows]
        (directory / name).write_text("\n".join(["\t".join(header.split()), *lines]) + "\n", encoding="utf-8")

    titles = [f"tt{i:07d}" for i in range(1, 80)]
    people = [f"nm{i:07d}" for i in range(1, 50)]
    basics = [(t, ("movie", "short")[i % 2], f'"Title" {i}', 1900 + i, None, i or None) for i, t in enumerate(titles)]
    table("title.basics.tsv", "tconst titleType primaryTitle startYear endYear runtimeMinutes", basics)
    table("title.ratings.tsv", "tconst averageRating numVotes", [(t, i / 10, i) for i, t in enumerate(titles[:60])])
    episodes = [(titles[i], titles[i + 20], i % 3 or None) for i in range(20)]
    table("title.episode.tsv", "tconst parentTconst seasonNumber", episodes)
    names = [(p, f"Name {i}", 1900 + i, None if i % 3 else 1990) for i, p in enumerate(people)]
    table("name.basics.tsv", "nconst primaryName birthYear deathYear", names)
    roles = [(titles[i % 79], i // 79 + 1, people[i % 49], '["Self"]' if i % 2 else None) for i in range(200)]
    table("title.principals.tsv", "tconst ordering nconst characters", roles)


def _transit(directory: Path) -> None:
    """GTFS: periods with a start and an end, dates without separators, texts such as 007, stations of stops."""
    routes = [(f"R{i}", f"0{i}", "", "00FF00") for i in range(20)]
    _rows(directory / "routes.txt", ["route_id", "route_short_name", "route_long_name", "route_color"], routes)
    stops = [(f"de:{i:05d}", f"Stop, {i}", 52 + i / 100, f"de:{i - i % 5:05d}" if i % 5 else "") for i in range(40)]
    _rows(directory / "stops.txt", ["stop_id", "stop_name", "stop_lat", "parent_station"], stops)
    calendar = [(i, 1, "20240101", "20241231") for i in range(3)]
    _rows(directory / "calendar.txt", ["service_id", "monday", "start_date", "end_date"], calendar)
    trips = [(f"R{i % 20}", i % 3, f"T{i}") for i in range(100)]
    _rows(directory / "trips.txt", ["route_id", "service_id", "trip_id"], trips)
    times = [(f"T{i // 5}", f"{24 + i % 3}:00:00", f"de:{i % 40:05d}", i % 5) for i in range(500)]
    _rows(directory / "stop_times.txt", ["trip_id", "arrival_time", "stop_id", "stop_sequence"], times)
    _rows(directory / "frequencies.txt", ["trip_id", "start_time", "end_time"], [])


DATA_SETS = {
    "movies": DataSet(
        _movies,
        {"Movie": 100, "Link": 100, "User": 40},
        {"Ratings": 80, "Tags": 60, "LinkMovie": 100},
        {},
    ),
    "flights": DataSet(
        _flights, {"Airport": 80}, {"Routes": 300}, {"airports.dat": _AIRPORT, "routes.dat": _ROUTE}, "csv"
    ),
    "shop": DataSet(
        _shop,
        {"Customer": 30, "Employee": 9, "Product": 40, "Order": 100, "Parcel": 200},
        {"OrderDetails": 200, "OrderCustomer": 90, "OrderEmployee": 100, "EmployeeReportsTo": 8, "ParcelOrder": 200},
        {},
    ),
    "films": DataSet(
        _films,
        {"NameBasic": 49, "TitleBasic": 79, "TitleRating": 60},
        {"TitleEpisode": 20, "TitlePrincipals": 200, "TitleRatingTitleBasic": 60},
        {},
    ),
    "transit": DataSet(
        _transit,
        {"Calendar": 3, "Frequency": 0, "Route": 20, "Stop": 40, "Trip": 100},
        {"StopTimes": 500, "StopParentStation": 32, "TripCalendar": 100, "TripRoute": 100},
        {},
        "csv",
    ),
    "citations": DataSet(_citations, {"Paper": 200}, {"Citations": 199}, {}),
    "social": DataSet(_social, {"Person": 60, "Post": 90}, {"Knows": 60, "Likes": 90, "PostCreatorPerson": 90}, {}),
}
