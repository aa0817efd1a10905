import type { Knex } from "knex";

/** Columns of each catalog that a dump or a listing needs; named, since those of PostgreSQL change between releases. */
const columns = {
  pg_namespace: "oid, nspname, nspowner",
  pg_class:
    "oid, relname, relnamespace, reltype, reloftype, relowner, relam, relkind, relpersistence, relispartition, relpartbound, reloptions, relrowsecurity, relreplident",
  pg_type:
    "oid, typname, typnamespace, typowner, typtype, typcategory, typrelid, typelem, typarray, typbasetype, typtypmod, typndims, typcollation, typdefault, typnotnull",
  pg_proc:
    "oid, proname, pronamespace, proowner, prolang, prokind, prosecdef, proisstrict, proretset, provolatile, proparallel, pronargs, prorettype, proargtypes, proallargtypes, proargmodes, proargnames, prosrc",
  pg_constraint:
    "oid, conname, connamespace, contype, condeferrable, condeferred, convalidated, conrelid, contypid, conindid, conparentid, confrelid, conkey, confkey, conislocal, coninhcount",
  pg_collation: "oid, collname, collnamespace",
  pg_operator: "oid, oprname, oprnamespace, oprleft, oprright, oprresult",
  pg_opclass: "oid, opcname, opcnamespace, opcmethod, opcintype, opcdefault, opckeytype",
  pg_attribute:
    "attrelid, attname, atttypid, attlen, attnum, atttypmod, attndims, attnotnull, atthasdef, attidentity, attgenerated, attisdropped, attislocal, attinhcount, attcollation, attstorage, attcompression, attoptions",
  pg_attrdef: "oid, adrelid, adnum, adbin",
  pg_index:
    "indexrelid, indrelid, indnatts, indnkeyatts, indisunique, indisprimary, indisexclusion, indisvalid, indisreplident, indkey, indcollation, indclass, indoption, indexprs, indpred",
  pg_inherits: "inhrelid, inhparent, inhseqno",
  pg_rewrite: "oid, rulename, ev_class, ev_type, is_instead",
  pg_trigger: "oid, tgrelid, tgparentid, tgname, tgfoid, tgtype, tgenabled, tgisinternal, tgconstraint",
  pg_sequence: "seqrelid, seqtypid, seqstart, seqincrement, seqmax, seqmin, seqcache, seqcycle",
  pg_partitioned_table: "partrelid, partstrat, partnatts, partattrs",
  pg_statistic_ext: "oid, stxrelid, stxname, stxnamespace, stxkind, stxkeys",
  pg_enum: "oid, enumtypid, enumsortorder, enumlabel",
  pg_range: "rngtypid, rngsubtype, rngmultitypid, rngcollation, rngsubopc",
  pg_depend: "classid, objid, objsubid, refclassid, refobjid, refobjsubid, deptype",
  pg_description: "objoid, classoid, objsubid, description",
} as const;

type Catalog = keyof typeof columns;

const inVisibleSchema = (column: string): string => `${column} in (select oid from kap_catalog.pg_namespace)`;
const ofVisibleRelation = (column: string): string => `${column} in (select oid from kap_catalog.pg_class)`;
const ofVisibleType = (column: string): string => `${column} in (select oid from kap_catalog.pg_type)`;
const ofOwnThing = (classColumn: string, column: string): string =>
  `(${classColumn}, ${column}) in (select classid, oid from kap_catalog.own_things)`;

/** Which rows of each catalog the asking role may see. In the order in which the views are made. */
const filters: [Catalog, string][] = [
  ["pg_namespace", "has_schema_privilege(oid, 'usage')"],
  ["pg_class", inVisibleSchema("relnamespace")],
  ["pg_type", inVisibleSchema("typnamespace")],
  ["pg_proc", inVisibleSchema("pronamespace")],
  ["pg_constraint", inVisibleSchema("connamespace")],
  ["pg_collation", inVisibleSchema("collnamespace")],
  ["pg_operator", inVisibleSchema("oprnamespace")],
  ["pg_opclass", inVisibleSchema("opcnamespace")],
  ["pg_statistic_ext", inVisibleSchema("stxnamespace")],
  ["pg_attribute", ofVisibleRelation("attrelid")],
  ["pg_attrdef", ofVisibleRelation("adrelid")],
  ["pg_index", ofVisibleRelation("indrelid")],
  ["pg_inherits", ofVisibleRelation("inhrelid")],
  ["pg_rewrite", ofVisibleRelation("ev_class")],
  ["pg_trigger", ofVisibleRelation("tgrelid")],
  ["pg_sequence", ofVisibleRelation("seqrelid")],
  ["pg_partitioned_table", ofVisibleRelation("partrelid")],
  ["pg_enum", ofVisibleType("enumtypid")],
  ["pg_range", ofVisibleType("rngtypid")],
];
const dependent: [Catalog, string][] = [
  ["pg_depend", ofOwnThing("classid", "objid")],
  ["pg_description", ofOwnThing("classoid", "objoid")],
];

const ownThings = (
  [
    ["pg_class", "relnamespace"],
    ["pg_type", "typnamespace"],
    ["pg_proc", "pronamespace"],
    ["pg_constraint", "connamespace"],
    ["pg_statistic_ext", "stxnamespace"],
  ] as const
).map(([name, column]) => `select '${name}'::regclass::oid, oid from pg_catalog.${name} where ${column} in (select oid from own)`);
const ownParts = (
  [
    ["pg_attrdef", "adrelid"],
    ["pg_rewrite", "ev_class"],
    ["pg_trigger", "tgrelid"],
  ] as const
).map(
  ([name, column]) =>
    `select '${name}'::regclass::oid, oid from pg_catalog.${name} where ${column} in (select c.oid from pg_catalog.pg_class c join own on own.oid = c.relnamespace)`,
);

const view = ([name, filter]: [Catalog, string]): string =>
  `create view kap_catalog.${name} with (security_barrier) as select ${columns[name]} from pg_catalog.${name} where ${filter};`;

/**
 * The catalogs as a kap's role may see them: of the schemas it may use, which are its own and PostgreSQL's, never
 * another kap's. A hardened
 * database (`hardenDatabase`) closes the real ones, so what runs as a kap's role reads `kap_catalog.pg_class` where it would read
 * `pg_class`. The views read with the platform's rights and filter by who asks.
 */
export async function createKapCatalog(db: Knex.Transaction): Promise<void> {
  await db.raw(
    [
      "create schema kap_catalog;",
      ...filters.map(view),
      `create view kap_catalog.own_things (classid, oid) with (security_barrier) as
       with own as (select oid from kap_catalog.pg_namespace where nspname not in ('pg_catalog', 'information_schema'))
       ${[...ownThings, ...ownParts].join("\n union all ")};`,
      ...dependent.map(view),
      // pg_get_viewdef reads pg_rewrite with its caller's rights. No search_path of its own: names come out as the caller would write them.
      `create function kap_catalog.view_definition(view oid) returns text language sql stable security definer
       begin atomic
         select pg_catalog.pg_get_viewdef(c.oid) from pg_catalog.pg_class c
         where c.oid = view and pg_catalog.has_schema_privilege(session_user, c.relnamespace, 'usage');
       end;`,
      "grant usage on schema kap_catalog to public;",
      "grant select on all tables in schema kap_catalog to public;",
    ].join("\n"),
  );
}
