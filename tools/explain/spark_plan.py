"""Reads a query's analyzed plan from Spark's JVM: its sources, its steps, and which of them flow
into state or a shuffle. Driver, through py4j; starts nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ...connectors.direct import NAME as DIRECT
from .expressions import function_name, items, kind_of, says, short_name
from .pipeline import AGGREGATE, SHUFFLE, STATE, End, Step

PASSED = {  # rows go through as they are, or each by itself
    *("Project", "Filter", "SubqueryAlias", "View", "ResolvedHint", "UnresolvedHint", "Expand"),
    *("Generate", "LocalLimit", "CTERelationDef"),
}
FUNCTIONS = {
    *("MapInPandas", "MapInArrow", "PythonMapInArrow", "FlatMapGroupsInPandas"),
    *("FlatMapGroupsInArrow", "FlatMapCoGroupsInPandas", "FlatMapCoGroupsInArrow"),
}
STATE_FUNCTIONS = {
    *("FlatMapGroupsInPandasWithState", "FlatMapGroupsWithState", "TransformWithState"),
    *("TransformWithStateInPandas", "TransformWithStateInPySpark"),
}
SHUFFLES = {"Repartition", "RepartitionByExpression", "RebalancePartitions", "Sort"}
GIVEN = {"LocalRelation", "LogicalRDD", "ExternalRDD"}
CONTAINED = {"Range", "OneRowRelation"}
SAYS = {
    "Aggregate": "aggregate",
    "Deduplicate": "drop duplicates",
    "DeduplicateWithinWatermark": "drop duplicates within the watermark",
    "Distinct": "distinct",
    "GlobalLimit": "limit",
    "Join": "join of two streams",
    "EventTimeWatermark": "watermark",
}
Origins = frozenset[int]  # steps, by their place in the list
NO: Origins = frozenset()


@dataclass
class _Found:
    kind: str
    name: str
    reaches: set[str] = field(default_factory=set)
    shuffled: bool = False
    matters: bool = True


@dataclass
class _Rows:
    """What comes out of a node: of which steps the outcome is in which column (by its id), and in
    which rows there are. `shuffled`: whether a shuffle stands before."""

    columns: dict[int, Origins] = field(default_factory=dict)
    which: Origins = NO
    shuffled: bool = False

    def all(self) -> Origins:
        """Of every column, and of the rows."""
        return self.which.union(*self.columns.values())


class PlanReader:
    """Reads one plan. `append`: whether the query's output mode is append."""

    def __init__(self, append: bool) -> None:
        self.sources: list[End] = []
        self._steps: list[_Found] = []
        self._append = append
        self._common: dict[int, Any] = {}  # common table expressions, by their numbers

    def read(self, plan: Any) -> None:
        """Read the plan, from its sources to its end."""
        rows = self._visit(plan)
        for origin in rows.which.union(*(rows.columns.get(key, NO) for key in _ids(plan))):
            self._steps[origin].matters = True

    @property
    def steps(self) -> tuple[Step, ...]:
        """In the order of the rows' way; those that are alike are told once."""
        found = (
            Step(one.kind, one.name, tuple(sorted(one.reaches)), one.shuffled)
            for one in self._steps
            if one.matters or one.reaches
        )
        return tuple(dict.fromkeys(found))

    def _add(self, kind: str, name: str, shuffled: bool = False) -> Origins:
        self._steps.append(_Found(kind, name, shuffled=shuffled))
        return frozenset([len(self._steps) - 1])

    def _reach(self, origins: Iterable[int], what: str) -> None:
        for origin in origins:
            self._steps[origin].reaches.add(what)

    def _visit(self, node: Any) -> _Rows:
        name = short_name(node)
        if name == "WithCTE":
            self._common |= {one.id(): one for one in items(node.cteDefs())}
            return self._visit(node.plan())
        children = list(items(node.children()))
        if name in STATE_FUNCTIONS:  # one has a second child: the state to begin with, mostly none
            children = [one for one in children if short_name(one) != "LocalRelation"]
        if name == "CTERelationRef":
            return self._common_table(node)
        return self._above(node, name, children) if children else self._leaf(node, name)

    def _above(self, node: Any, name: str, children: list[Any]) -> _Rows:
        inputs = [self._visit(child) for child in children]
        rows = _Rows(
            {key: of for one in inputs for key, of in one.columns.items()},
            NO.union(*(one.which for one in inputs)),
            any(one.shuffled for one in inputs),
        )
        streams = sum(bool(child.isStreaming()) for child in children)
        if name == "Union":
            return self._union(node, children, inputs, rows)
        if name == "Join":
            return self._join(node, children, inputs, rows, streams)
        if name in FUNCTIONS or name in STATE_FUNCTIONS:
            return self._function(node, name, rows)
        if name in SAYS and streams and name != "EventTimeWatermark":
            return self._state(node, name, rows)
        return self._plain(node, name, rows)

    def _leaf(self, node: Any, name: str) -> _Rows:
        if node.isStreaming():
            source = _stream_source(node, name)
            is_direct = name == "StreamingRelationV2" and node.sourceName().startswith(DIRECT)
            if source not in self.sources:
                self.sources.append(source)
            if source.format == "eo-map" and source.says("backend") == "kafka":
                return _Rows(which=self._add("compacted", f"map {source.options.get('map', '')}"))
            return _Rows(which=self._add("function", "transform") if is_direct else NO)
        kind, text = "changing side", f"side {_side_name(node, name)}"
        if name in GIVEN:
            kind, text = "given side", "table of the program"
        elif name in CONTAINED:
            kind, text = "fixed side", f"side {name}"
        return _Rows(which=self._add(kind, text))

    def _common_table(self, node: Any) -> _Rows:
        """A reference to `WITH ...`, which has columns of its own."""
        definition = self._common[node.cteId()]
        rows = self._visit(definition.child())
        columns = dict(rows.columns)
        for inner, outer in zip(_ids(definition), _ids(node), strict=True):
            columns[outer] = columns.get(inner, NO)
        return _Rows(columns, rows.which, rows.shuffled)

    def _plain(self, node: Any, name: str, rows: _Rows) -> _Rows:
        before = len(self._steps)
        expressions = list(items(node.expressions()))
        scanned = [self._scan(one, rows) for one in expressions]
        union = NO.union(*scanned)
        if name in SHUFFLES:
            what = union | rows.which if expressions and name != "Repartition" else rows.all()
            if name == "Repartition" and not node.shuffle():
                return rows
            self._reach(what, SHUFFLE)
            self._add("shuffle", "sort" if name == "Sort" else "repartition")
            return _Rows(rows.columns, rows.which, shuffled=True)
        if name == "Sample":
            return _Rows(rows.columns, rows.which | self._add("placement", "sample()"), True)
        if name == "EventTimeWatermark":
            self._add("watermark", "watermark")
            return _Rows(rows.columns, rows.which | union, rows.shuffled)
        is_stream = bool(node.isStreaming())
        if name not in PASSED and name not in SAYS and is_stream:
            added = self._add("unknown", name)
            self._reach(rows.all(), STATE)
            return _Rows(self._all_columns(node, rows.all() | added), rows.all() | added, True)
        columns = dict(rows.columns)
        for expression, origins in zip(expressions, scanned, strict=True):
            if short_name(expression) == "Alias":
                columns[expression.exprId().id()] = origins
        which = rows.which
        if name == "Filter":
            which |= union
        elif name in ("Generate", "Expand"):
            which |= union
            columns = self._all_columns(node, union, columns)
        if len(self._steps) == before and is_stream and name in ("Project", "Filter", "Generate"):
            self._add("plain", {"Project": "select", "Generate": "explode"}.get(name, name.lower()))
        return _Rows(columns, which, rows.shuffled)

    def _state(self, node: Any, name: str, rows: _Rows) -> _Rows:
        expressions = list(items(node.expressions()))
        scanned = [self._scan(one, rows) for one in expressions]
        origins = rows.which.union(*scanned)
        if name == "Distinct":
            origins |= rows.all()
        what = AGGREGATE if name == "Aggregate" and self._append else STATE
        self._reach(origins, what)
        self._reach(origins, SHUFFLE)
        self._add("state", SAYS[name])
        columns = dict(rows.columns)
        for expression, of in zip(expressions, scanned, strict=True):
            if short_name(expression) == "Alias":
                columns[expression.exprId().id()] = of | rows.which
        if name.startswith("Deduplicate"):
            columns |= self._first_rows(node, expressions, columns)
        return _Rows(columns, origins, shuffled=True)

    def _first_rows(
        self, node: Any, keys: list[Any], columns: Mapping[int, Origins]
    ) -> dict[int, Origins]:
        """The columns of the row that comes first of those with the same keys, but the keys."""
        others = set(_ids(node)) - {key.exprId().id() for key in keys}
        if not others:
            return {}
        first = self._add("order", "first of duplicates", shuffled=True)
        self._steps[-1].matters = False  # unless one of these columns is used
        return {key: columns.get(key, NO) | first for key in others}

    def _function(self, node: Any, name: str, rows: _Rows) -> _Rows:
        expression = _function_of(node)
        text = function_name(expression) if expression is not None else name
        kind = "state function" if name in STATE_FUNCTIONS else "function"
        if expression is not None and not expression.deterministic():
            kind = "nondeterministic"
        added = self._add(kind, text, rows.shuffled)
        origins = rows.all() | added
        grouped = name in STATE_FUNCTIONS or "Group" in name
        if grouped:
            self._reach(rows.all(), SHUFFLE)
        if name in STATE_FUNCTIONS:
            self._reach(origins, STATE)
        return _Rows(self._all_columns(node, origins), origins, rows.shuffled or grouped)

    def _join(
        self, node: Any, children: list[Any], inputs: list[_Rows], rows: _Rows, streams: int
    ) -> _Rows:
        condition = [self._scan(one, rows) for one in items(node.expressions())]
        union = rows.which.union(*condition)
        if streams == 2:
            self._reach(rows.all() | union, STATE)
            self._reach(union, SHUFFLE)
            self._add("state", SAYS["Join"])
            return _Rows(rows.columns, rows.all() | union, shuffled=True)
        self._reach(NO.union(*condition), SHUFFLE)
        self._add("plain", "join with a table" if streams else "join of tables")
        columns = dict(rows.columns)
        for child, one in zip(children, inputs, strict=True):
            if not child.isStreaming():
                columns = self._all_columns(child, one.all(), columns)
        return _Rows(columns, union, rows.shuffled)

    def _union(self, node: Any, children: list[Any], inputs: list[_Rows], rows: _Rows) -> _Rows:
        columns = dict(rows.columns)
        outputs = [_ids(child) for child in children]
        for place, key in enumerate(_ids(node)):
            columns[key] = NO.union(
                *(one.columns.get(of[place], NO) for of, one in zip(outputs, inputs, strict=True))
            )
        self._add("plain", "union")
        return _Rows(columns, rows.which, rows.shuffled)

    def _all_columns(
        self, node: Any, origins: Origins, known: Mapping[int, Origins] | None = None
    ) -> dict[int, Origins]:
        found = dict(known or {})
        for key in _ids(node):
            found[key] = found.get(key, NO) | origins
        return found

    def _scan(self, expression: Any, rows: _Rows) -> Origins:
        """The steps whose outcome is in an expression; what is not deterministic becomes one."""
        name = short_name(expression)
        if name == "AttributeReference":
            return rows.columns.get(expression.exprId().id(), NO)
        found = NO
        if name.endswith("Subquery") or name in ("Exists", "ListQuery"):
            found |= self._visit(expression.plan()).all()
        for child in items(expression.children()):
            found |= self._scan(child, rows)
        kind = kind_of(expression, name)
        if kind is not None:
            found |= self._add(kind, says(expression, name), rows.shuffled)
        return found


def _ids(node: Any) -> list[int]:
    return [attribute.exprId().id() for attribute in items(node.output())]


def _function_of(node: Any) -> Any:
    for expression in items(node.expressions()):
        if short_name(expression) == "PythonUDF":
            return expression
    return None


def _stream_source(node: Any, name: str) -> End:
    if name == "StreamingRelationV2":
        return End.of(node.sourceName(), dict(node.extraOptions()))
    if name in ("StreamingRelation", "StreamingExecutionRelation"):
        try:
            options = {pair._1(): pair._2() for pair in items(node.dataSource().options())}
            return End.of(node.dataSource().className().rpartition(".")[2], options)
        except Exception:  # py4j: another Spark's class
            return End.of(node.sourceName(), {})
    return End.of(name, {})


def _side_name(node: Any, name: str) -> str:
    if name == "DataSourceV2Relation":
        return str(node.table().name())
    if name == "LogicalRelation":
        return short_name(node.relation())
    return name
