import type { ClientBase } from "pg";
import { identifier, literal } from "#platform/sql-text.ts";

/** One thing of a schema as the statement that makes it. */
export interface SchemaObject {
  /** Before the rows are loaded, or after. */
  phase: "before" | "after";
  sql: string;
  /** Of a table: what its rows need. */
  table?: { name: string; columns: string[]; hasIdentity: boolean; isPartitioned: boolean };
}

/** A node of the order in which things must be made: by `pg_depend`, so that what is needed comes first. */
interface Node extends SchemaObject {
  key: string;
}

/** All things of a schema, in an order in which they can be made. The statements name things unqualified. */
export async function readCatalog(client: ClientBase, schema: string): Promise<SchemaObject[]> {
  const before = [
    ...(await readTypes(client, schema)),
    ...(await readFunctions(client, schema)),
    ...(await readSequences(client, schema)),
    ...(await readTables(client, schema)),
  ];
  const views = await readViews(client, schema);
  const edges = await readDependencies(client, schema);
  const nodes = inOrder([...before, ...views], edges);
  return [
    ...nodes.filter((node) => node.phase === "before"),
    ...(await readConstraints(client, schema)),
    ...(await readIndexes(client, schema)),
    ...nodes.filter((node) => node.phase === "after"),
    ...(await readSequenceStates(client, schema)),
    ...(await readTriggers(client, schema)),
    ...(await readComments(client, schema)),
  ];
}

/** Depth first, in the order given; a cycle (two functions that name each other) is broken where it closes: function bodies are not checked while loading. */
function inOrder(nodes: Node[], edges: Map<string, string[]>): Node[] {
  const byKey = new Map(nodes.map((node) => [node.key, node]));
  const done = new Set<string>();
  const ordered: Node[] = [];
  const visit = (node: Node): void => {
    if (done.has(node.key)) return;
    done.add(node.key);
    for (const needed of edges.get(node.key) ?? []) {
      const other = byKey.get(needed);
      if (other) visit(other);
    }
    ordered.push(node);
  };
  for (const node of nodes) visit(node);
  return ordered;
}

async function rowsOf<T>(client: ClientBase, text: string, schema: string): Promise<T[]> {
  return (await client.query(text, [schema])).rows as T[];
}

/** What needs what. Row types and array types of tables count as their table; defaults, rules and constraints as the relation they belong to. */
async function readDependencies(client: ClientBase, schema: string): Promise<Map<string, string[]>> {
  const rows = await rowsOf<{ dependent: string; needed: string }>(
    client,
    `with ns as (select oid from kap_catalog.pg_namespace where nspname = $1),
     named(classid, objid, key) as (
       select 'pg_class'::regclass, c.oid, 'relation:' || c.oid from kap_catalog.pg_class c, ns where c.relnamespace = ns.oid
       union all select 'pg_proc'::regclass, p.oid, 'function:' || p.oid from kap_catalog.pg_proc p, ns where p.pronamespace = ns.oid
       union all select 'pg_type'::regclass, t.oid, case when t.typrelid <> 0 and c.relkind <> 'c' then 'relation:' || t.typrelid else 'type:' || t.oid end
                 from kap_catalog.pg_type t cross join ns left join kap_catalog.pg_class c on c.oid = t.typrelid where t.typnamespace = ns.oid and t.typelem = 0
       union all select 'pg_type'::regclass, t.oid, case when e.typrelid <> 0 and c.relkind <> 'c' then 'relation:' || e.typrelid else 'type:' || e.oid end
                 from kap_catalog.pg_type t cross join ns join kap_catalog.pg_type e on e.oid = t.typelem left join kap_catalog.pg_class c on c.oid = e.typrelid where t.typnamespace = ns.oid
       union all select 'pg_attrdef'::regclass, d.oid, 'relation:' || d.adrelid from kap_catalog.pg_attrdef d join kap_catalog.pg_class c on c.oid = d.adrelid, ns where c.relnamespace = ns.oid
       union all select 'pg_rewrite'::regclass, r.oid, 'relation:' || r.ev_class from kap_catalog.pg_rewrite r join kap_catalog.pg_class c on c.oid = r.ev_class, ns where c.relnamespace = ns.oid
       union all select 'pg_constraint'::regclass, k.oid, case when k.contypid <> 0 then 'type:' || k.contypid else 'relation:' || k.conrelid end
                 from kap_catalog.pg_constraint k, ns where k.connamespace = ns.oid and k.contype in ('c', 'n')
     )
     select distinct a.key as dependent, b.key as needed
     from kap_catalog.pg_depend d join named a on a.classid = d.classid and a.objid = d.objid join named b on b.classid = d.refclassid and b.objid = d.refobjid
     where a.key <> b.key and not (d.deptype in ('a', 'i') and a.key like 'relation:%' and exists (select 1 from kap_catalog.pg_class s where 'relation:' || s.oid = a.key and s.relkind = 'S'))`,
    schema,
  );
  const edges = new Map<string, string[]>();
  for (const { dependent, needed } of rows) edges.set(dependent, [...(edges.get(dependent) ?? []), needed]);
  return edges;
}

async function readTypes(client: ClientBase, schema: string): Promise<Node[]> {
  const enums = await rowsOf<{ oid: string; name: string; labels: string[] }>(
    client,
    `select t.oid, t.typname as name, array_agg(e.enumlabel::text order by e.enumsortorder) as labels
     from kap_catalog.pg_type t join kap_catalog.pg_namespace n on n.oid = t.typnamespace join kap_catalog.pg_enum e on e.enumtypid = t.oid where n.nspname = $1 group by t.oid, t.typname order by t.oid`,
    schema,
  );
  const domains = await rowsOf<{
    oid: string;
    name: string;
    base: string;
    is_required: boolean;
    fallback: string | null;
    collation: string | null;
    checks: string[] | null;
  }>(
    client,
    `select t.oid, t.typname as name, format_type(t.typbasetype, t.typtypmod) as base, t.typnotnull as is_required, t.typdefault as fallback,
            case when t.typcollation <> b.typcollation then quote_ident(c.collname) end as collation,
            (select array_agg('constraint ' || quote_ident(k.conname) || ' ' || pg_get_constraintdef(k.oid) order by k.conname) from kap_catalog.pg_constraint k where k.contypid = t.oid and k.contype = 'c') as checks
     from kap_catalog.pg_type t join kap_catalog.pg_namespace n on n.oid = t.typnamespace join kap_catalog.pg_type b on b.oid = t.typbasetype left join kap_catalog.pg_collation c on c.oid = t.typcollation
     where n.nspname = $1 and t.typtype = 'd' order by t.oid`,
    schema,
  );
  const composites = await rowsOf<{ oid: string; name: string; columns: string[] | null }>(
    client,
    `select t.oid, t.typname as name, (select array_agg(quote_ident(a.attname) || ' ' || format_type(a.atttypid, a.atttypmod) order by a.attnum)
                                       from kap_catalog.pg_attribute a where a.attrelid = t.typrelid and a.attnum > 0 and not a.attisdropped) as columns
     from kap_catalog.pg_type t join kap_catalog.pg_namespace n on n.oid = t.typnamespace join kap_catalog.pg_class c on c.oid = t.typrelid and c.relkind = 'c' where n.nspname = $1 order by t.oid`,
    schema,
  );
  const ranges = await rowsOf<{ oid: string; name: string; subtype: string }>(
    client,
    `select t.oid, t.typname as name, format_type(r.rngsubtype, null) as subtype
     from kap_catalog.pg_range r join kap_catalog.pg_type t on t.oid = r.rngtypid join kap_catalog.pg_namespace n on n.oid = t.typnamespace where n.nspname = $1 order by t.oid`,
    schema,
  );
  const node = (oid: string, sql: string): Node => ({ key: `type:${oid}`, phase: "before", sql });
  return [
    ...enums.map((type) => node(type.oid, `create type ${identifier(type.name)} as enum (${type.labels.map(literal).join(", ")});`)),
    ...domains.map((type) =>
      node(
        type.oid,
        `${[
          `create domain ${identifier(type.name)} as ${type.base}`,
          ...(type.collation ? [`collate ${type.collation}`] : []),
          ...(type.fallback === null ? [] : [`default ${type.fallback}`]),
          ...(type.is_required ? ["not null"] : []),
          ...(type.checks ?? []),
        ].join(" ")};`,
      ),
    ),
    ...composites.map((type) => node(type.oid, `create type ${identifier(type.name)} as (${(type.columns ?? []).join(", ")});`)),
    ...ranges.map((type) => node(type.oid, `create type ${identifier(type.name)} as range (subtype = ${type.subtype});`)),
  ];
}

async function readFunctions(client: ClientBase, schema: string): Promise<Node[]> {
  const rows = await rowsOf<{ oid: string; definition: string }>(
    client,
    `select p.oid, pg_get_functiondef(p.oid) as definition from kap_catalog.pg_proc p join kap_catalog.pg_namespace n on n.oid = p.pronamespace
     where n.nspname = $1 and p.prokind in ('f', 'p', 'w')
       and not exists (select 1 from kap_catalog.pg_depend d where d.classid = 'pg_proc'::regclass and d.objid = p.oid and d.deptype in ('i', 'e')) -- made with a range type or an extension
     order by p.oid`,
    schema,
  );
  // pg_get_functiondef qualifies the function's own name whatever the search_path is.
  const own = [`${identifier(schema)}.`, `${schema}.`];
  return rows.map((row) => {
    const definition = own.reduce(
      (text, prefix) => text.replace(new RegExp(`^(CREATE OR REPLACE (?:FUNCTION|PROCEDURE) )${escapePattern(prefix)}`), "$1"),
      row.definition,
    );
    return { key: `function:${row.oid}`, phase: "before", sql: `${definition.trimEnd()};` };
  });
}

function escapePattern(text: string): string {
  return text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
}

/** Sequences that belong to no identity column (those are made with their table). */
async function readSequences(client: ClientBase, schema: string): Promise<Node[]> {
  const rows = await rowsOf<{
    oid: string;
    name: string;
    type: string;
    start: string;
    increment: string;
    min: string;
    max: string;
    cache: string;
    cycle: boolean;
  }>(
    client,
    `select c.oid, c.relname as name, format_type(s.seqtypid, null) as type, s.seqstart as start, s.seqincrement as increment, s.seqmin as min, s.seqmax as max, s.seqcache as cache, s.seqcycle as cycle
     from kap_catalog.pg_class c join kap_catalog.pg_namespace n on n.oid = c.relnamespace join kap_catalog.pg_sequence s on s.seqrelid = c.oid
     where n.nspname = $1 and not exists (select 1 from kap_catalog.pg_depend d where d.classid = 'pg_class'::regclass and d.objid = c.oid and d.deptype = 'i') order by c.oid`,
    schema,
  );
  return rows.map((row) => ({
    key: `relation:${row.oid}`,
    phase: "before",
    sql: `create sequence ${identifier(row.name)} as ${row.type} increment by ${row.increment} minvalue ${row.min} maxvalue ${row.max} start with ${row.start} cache ${row.cache}${row.cycle ? " cycle" : ""};`,
  }));
}

interface ColumnRow {
  name: string;
  type: string;
  collation: string | null;
  is_required: boolean;
  fallback: string | null;
  identity: "" | "a" | "d";
  generated: "" | "s" | "v";
  sequence: string | null;
}

async function readTables(client: ClientBase, schema: string): Promise<Node[]> {
  const tables = await rowsOf<{
    oid: string;
    name: string;
    unlogged: boolean;
    partition_key: string | null;
    parent: string | null;
    bound: string | null;
    inherits: string[] | null;
    columns: ColumnRow[] | null;
    checks: string[] | null;
  }>(
    client,
    `select c.oid, c.relname as name, c.relpersistence = 'u' as unlogged,
            case when c.relkind = 'p' then pg_get_partkeydef(c.oid) end as partition_key,
            case when c.relispartition then (select quote_ident(p.relname) from kap_catalog.pg_inherits i join kap_catalog.pg_class p on p.oid = i.inhparent where i.inhrelid = c.oid) end as parent,
            case when c.relispartition then pg_get_expr(c.relpartbound, c.oid) end as bound,
            case when not c.relispartition then (select array_agg(quote_ident(p.relname) order by i.inhseqno) from kap_catalog.pg_inherits i join kap_catalog.pg_class p on p.oid = i.inhparent where i.inhrelid = c.oid) end as inherits,
            (select jsonb_agg(jsonb_build_object('name', a.attname, 'type', format_type(a.atttypid, a.atttypmod),
                      'collation', (select quote_ident(l.collname) from kap_catalog.pg_collation l where l.oid = a.attcollation and a.attcollation <> t.typcollation),
                      'is_required', a.attnotnull, 'fallback', pg_get_expr(d.adbin, d.adrelid), 'identity', a.attidentity, 'generated', a.attgenerated,
                      'sequence', case when a.attidentity <> '' then (select 'increment by ' || s.seqincrement || ' minvalue ' || s.seqmin || ' maxvalue ' || s.seqmax || ' start with ' || s.seqstart || ' cache ' || s.seqcache || case when s.seqcycle then ' cycle' else '' end
                         from kap_catalog.pg_depend q join kap_catalog.pg_sequence s on s.seqrelid = q.objid where q.classid = 'pg_class'::regclass and q.refobjid = c.oid and q.refobjsubid = a.attnum and q.deptype = 'i') end) order by a.attnum)
             from kap_catalog.pg_attribute a join kap_catalog.pg_type t on t.oid = a.atttypid left join kap_catalog.pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
             where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped) as columns,
            (select array_agg('constraint ' || quote_ident(k.conname) || ' ' || pg_get_constraintdef(k.oid) order by k.conname) from kap_catalog.pg_constraint k where k.conrelid = c.oid and k.contype = 'c' and k.conislocal) as checks
     from kap_catalog.pg_class c join kap_catalog.pg_namespace n on n.oid = c.relnamespace where n.nspname = $1 and c.relkind in ('r', 'p') order by c.oid`,
    schema,
  );
  return tables.map((table) => {
    const columns = table.columns ?? [];
    const lines = [...columns.map(columnOf), ...(table.checks ?? [])].map((line) => `  ${line}`).join(",\n");
    const head = `create ${table.unlogged ? "unlogged " : ""}table ${identifier(table.name)}`;
    const partitioned = table.partition_key === null ? "" : ` partition by ${table.partition_key}`;
    const sql = table.parent
      ? `${head} partition of ${table.parent} ${table.bound}${partitioned};`
      : `${head} (\n${lines}\n)${table.inherits ? ` inherits (${table.inherits.join(", ")})` : ""}${partitioned};`;
    return {
      key: `relation:${table.oid}`,
      phase: "before",
      sql,
      // Rows are read from the partitions' root, which sorts them into its partitions again.
      ...(table.parent
        ? {}
        : {
            table: {
              name: table.name,
              columns: columns.filter((column) => column.generated === "").map((column) => column.name),
              hasIdentity: columns.some((column) => column.identity === "a"),
              isPartitioned: table.partition_key !== null,
            },
          }),
    } satisfies Node;
  });
}

function columnOf(column: ColumnRow): string {
  const parts = [identifier(column.name), column.type];
  if (column.collation) parts.push(`collate ${column.collation}`);
  if (column.generated !== "") parts.push(`generated always as (${column.fallback}) ${column.generated === "s" ? "stored" : "virtual"}`);
  else if (column.identity !== "")
    parts.push(`generated ${column.identity === "a" ? "always" : "by default"} as identity (${column.sequence})`);
  else if (column.fallback !== null) parts.push(`default ${column.fallback}`);
  if (column.is_required) parts.push("not null");
  return parts.join(" ");
}

async function readViews(client: ClientBase, schema: string): Promise<Node[]> {
  const rows = await rowsOf<{ oid: string; name: string; kind: string; definition: string }>(
    client,
    `select c.oid, c.relname as name, c.relkind as kind, kap_catalog.view_definition(c.oid) as definition
     from kap_catalog.pg_class c join kap_catalog.pg_namespace n on n.oid = c.relnamespace where n.nspname = $1 and c.relkind in ('v', 'm') order by c.oid`,
    schema,
  );
  return rows.map((row) => ({
    key: `relation:${row.oid}`,
    phase: "after",
    sql: `create ${row.kind === "m" ? "materialized " : ""}view ${identifier(row.name)} as\n${row.definition.trim()}`,
  }));
}

/** Primary keys, unique and exclusion constraints first: foreign keys stand on them. */
async function readConstraints(client: ClientBase, schema: string): Promise<SchemaObject[]> {
  const rows = await rowsOf<{ table_name: string; name: string; definition: string }>(
    client,
    `select c.relname as table_name, k.conname as name, pg_get_constraintdef(k.oid) as definition
     from kap_catalog.pg_constraint k join kap_catalog.pg_class c on c.oid = k.conrelid join kap_catalog.pg_namespace n on n.oid = c.relnamespace
     where n.nspname = $1 and k.contype in ('p', 'u', 'x', 'f') and k.conparentid = 0 and not (c.relispartition and k.coninhcount > 0)
     order by k.contype = 'f', k.contype <> 'p', k.oid`,
    schema,
  );
  return rows.map((row) => ({
    phase: "after",
    sql: `alter table ${identifier(row.table_name)} add constraint ${identifier(row.name)} ${row.definition};`,
  }));
}

/** Indexes that no constraint made. */
async function readIndexes(client: ClientBase, schema: string): Promise<SchemaObject[]> {
  const rows = await rowsOf<{ definition: string }>(
    client,
    `select pg_get_indexdef(i.indexrelid) as definition from kap_catalog.pg_index i join kap_catalog.pg_class c on c.oid = i.indexrelid join kap_catalog.pg_class t on t.oid = i.indrelid join kap_catalog.pg_namespace n on n.oid = c.relnamespace
     where n.nspname = $1 and t.relkind in ('r', 'p') and not exists (select 1 from kap_catalog.pg_constraint k where k.conindid = i.indexrelid and k.contype in ('p', 'u', 'x')) and not exists (select 1 from kap_catalog.pg_inherits h where h.inhrelid = i.indexrelid)
     order by c.oid`,
    schema,
  );
  // pg_get_indexdef qualifies the table whatever the search_path is.
  const prefixes = [`${identifier(schema)}.`, `${schema}.`];
  return rows.map((row) => ({
    phase: "after",
    sql: `${prefixes.reduce((text, prefix) => text.replace(` ON ${prefix}`, " ON ").replace(` ON ONLY ${prefix}`, " ON ONLY "), row.definition)};`,
  }));
}

/** Where every sequence stands, those of identity columns too; and which column owns which. */
async function readSequenceStates(client: ClientBase, schema: string): Promise<SchemaObject[]> {
  const rows = await rowsOf<{ name: string; table_name: string | null; column_name: string | null; kind: string | null }>(
    client,
    `select s.relname as name, t.relname as table_name, a.attname as column_name, d.deptype as kind
     from kap_catalog.pg_class s join kap_catalog.pg_namespace n on n.oid = s.relnamespace
     left join kap_catalog.pg_depend d on d.classid = 'pg_class'::regclass and d.objid = s.oid and d.refclassid = 'pg_class'::regclass and d.deptype in ('a', 'i')
     left join kap_catalog.pg_class t on t.oid = d.refobjid left join kap_catalog.pg_attribute a on a.attrelid = d.refobjid and a.attnum = d.refobjsubid
     where n.nspname = $1 and s.relkind = 'S' order by s.relname`,
    schema,
  );
  const statements: SchemaObject[] = [];
  for (const row of rows) {
    const { rows: states } = await client.query<{ last_value: string; is_called: boolean }>(
      `select last_value, is_called from ${identifier(schema)}.${identifier(row.name)}`,
    );
    const state = states[0];
    if (!state) continue;
    const target =
      row.kind === "i"
        ? `pg_get_serial_sequence(${literal(identifier(row.table_name ?? ""))}, ${literal(row.column_name ?? "")})`
        : literal(identifier(row.name));
    const owned =
      row.kind === "a"
        ? `alter sequence ${identifier(row.name)} owned by ${identifier(row.table_name ?? "")}.${identifier(row.column_name ?? "")};\n`
        : "";
    statements.push({ phase: "after", sql: `${owned}select setval(${target}, ${state.last_value}, ${state.is_called});` });
  }
  return statements;
}

async function readTriggers(client: ClientBase, schema: string): Promise<SchemaObject[]> {
  const rows = await rowsOf<{ definition: string }>(
    client,
    `select pg_get_triggerdef(t.oid, true) as definition from kap_catalog.pg_trigger t join kap_catalog.pg_class c on c.oid = t.tgrelid join kap_catalog.pg_namespace n on n.oid = c.relnamespace
     where n.nspname = $1 and not t.tgisinternal and t.tgparentid = 0 order by t.oid`,
    schema,
  );
  return rows.map((row) => ({ phase: "after", sql: `${row.definition};` }));
}

async function readComments(client: ClientBase, schema: string): Promise<SchemaObject[]> {
  const rows = await rowsOf<{ kind: string; name: string; column_name: string | null; comment: string }>(
    client,
    `select case c.relkind when 'v' then 'view' when 'm' then 'materialized view' when 'S' then 'sequence' when 'i' then 'index' else 'table' end as kind,
            c.relname as name, a.attname as column_name, d.description as comment
     from kap_catalog.pg_description d join kap_catalog.pg_class c on c.oid = d.objoid and d.classoid = 'pg_class'::regclass join kap_catalog.pg_namespace n on n.oid = c.relnamespace
     left join kap_catalog.pg_attribute a on a.attrelid = c.oid and a.attnum = d.objsubid and d.objsubid > 0
     where n.nspname = $1 and c.relkind in ('r', 'p', 'v', 'm', 'S', 'i') order by c.oid, d.objsubid`,
    schema,
  );
  return rows.map((row) => ({
    phase: "after",
    sql: row.column_name
      ? `comment on column ${identifier(row.name)}.${identifier(row.column_name)} is ${literal(row.comment)};`
      : `comment on ${row.kind} ${identifier(row.name)} is ${literal(row.comment)};`,
  }));
}
