import { identifier, literal, runSql, type SqlRunner } from "./sql-text.ts";

/**
 * Functions of PostgreSQL that reach outside a kap's schema or outlive its statement: large objects, notifications, advisory locks, waiting,
 * other sessions, session settings, and SQL that is handed over as text behind the parser's back. As LIKE patterns over pg_proc.proname.
 */
const refusedFunctions = [
  "lo\\_%",
  "loread",
  "lowrite",
  "pg\\_notify",
  "pg\\_listening\\_channels",
  "pg\\_advisory\\_%",
  "pg\\_try\\_advisory\\_%",
  "pg\\_sleep%",
  "pg\\_cancel\\_backend",
  "pg\\_terminate\\_backend",
  "pg\\_export\\_snapshot",
  "pg\\_logical\\_emit\\_message",
  "pg\\_stat\\_get\\_activity",
  "pg\\_stat\\_get\\_backend\\_%",
  "pg\\_lock\\_status",
  "pg\\_database\\_size",
  "pg\\_tablespace\\_size",
  "set\\_config",
  "query\\_to\\_xml%",
  "cursor\\_to\\_xml%",
  "table\\_to\\_xml%",
  "schema\\_to\\_xml%",
  "database\\_to\\_xml%",
  "ts\\_stat",
];

/** Catalogs that say nothing about others: the rest is not readable, so that no listing shows a kap the names of another
 * (decided §7.3). What runs as a kap's role reads the views of the schema `kap_catalog` instead, which show it its own. */
const openCatalogs = [
  "pg_settings",
  "pg_timezone_names",
  "pg_timezone_abbrevs",
  "pg_cursors",
  "pg_prepared_statements",
  "pg_language",
  "pg_am",
];

/** Views of information_schema that list what PUBLIC may use by default: every function, type and domain of every kap. */
const tellingViews = [
  "data_type_privileges",
  "domain_constraints",
  "element_types",
  "parameters",
  "routine_privileges",
  "routines",
  "udt_privileges",
  "user_defined_types",
  "usage_privileges",
];

const tellingViewList = tellingViews.map(literal).join(", ");
const refusedFunctionList = refusedFunctions.map(literal).join(", ");
const openCatalogList = openCatalogs.map(literal).join(", ");

/** Functions of the catalog that PUBLIC may still call and should not. */
const looseFunctions = `
  select p.oid::regprocedure::text as name from pg_catalog.pg_proc p
  where p.pronamespace = 'pg_catalog'::regnamespace and p.proname like any (array[${refusedFunctionList}])
    and exists (select from aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a where a.grantee = 0)`;

/** Catalogs that PUBLIC may still read, whole or by column, and should not. */
const looseCatalogs = `
  select c.relnamespace::regnamespace || '.' || quote_ident(c.relname) as name from pg_catalog.pg_class c
  where c.relkind in ('r', 'v')
    and (c.relnamespace = 'pg_catalog'::regnamespace and c.relname <> all (array[${openCatalogList}])
         or c.relnamespace = 'information_schema'::regnamespace and c.relname = any (array[${tellingViewList}]))
    and (exists (select from aclexplode(c.relacl) a where a.grantee = 0)
         or exists (select from pg_catalog.pg_attribute t, aclexplode(t.attacl) a where t.attrelid = c.oid and a.grantee = 0))`;

/**
 * Closes what only a superuser can close in the database he is connected to, and gives the platform's login what it needs of it. Safe to
 * repeat: run it once per database, before the platform's first start. Without it kaps are still kept to their own schemas by their roles, but can
 * see names in the catalogs, wait, and take advisory locks.
 */
export async function hardenDatabase(admin: SqlRunner, options: { platformRole: string }): Promise<void> {
  const platform = identifier(options.platformRole);
  const functions = await runSql<{ name: string }>(admin, looseFunctions);
  const catalogs = await runSql<{ name: string }>(admin, looseCatalogs);
  const statements = [
    ...functions.flatMap(({ name }) => [
      `revoke execute on function pg_catalog.${name} from public`,
      `grant execute on function pg_catalog.${name} to ${platform}`,
    ]),
    ...catalogs.flatMap(({ name }) => [
      // Some catalogs (pg_subscription) are open by column: what the platform could read so it keeps.
      `revoke all on ${name} from public`,
      `grant select on ${name} to ${platform}`,
    ]),
    `do $do$ begin
      if not has_parameter_privilege(${literal(options.platformRole)}, 'temp_file_limit', 'set') then
        grant set on parameter temp_file_limit to ${platform};
      end if;
    end $do$`,
    ...["postgres", "template1"].map(
      (name) => `do $do$ begin
        if exists (select from pg_catalog.pg_database d, aclexplode(coalesce(d.datacl, acldefault('d', d.datdba))) a
                   where d.datname = ${literal(name)} and d.datname <> current_database() and a.grantee = 0) then
          revoke all on database ${name} from public;
        end if;
      end $do$`,
    ),
  ];
  for (const statement of statements) await runSql(admin, statement);
}

/**
 * What is still open to every login of this database although it should not be, a line each; empty when it was hardened. For a line in the log
 * at start and in readiness' detail: the platform works without, with one wall less.
 */
export async function checkHardened(runner: SqlRunner): Promise<string[]> {
  const functions = await runSql<{ name: string }>(runner, looseFunctions);
  const catalogs = await runSql<{ name: string }>(runner, looseCatalogs);
  const databases = await runSql<{ name: string }>(
    runner,
    `select quote_ident(d.datname) as name from pg_database d
     where d.datallowconn and exists (select from aclexplode(coalesce(d.datacl, acldefault('d', d.datdba))) a
                                      where a.grantee = 0 and (a.privilege_type = 'CONNECT' or d.datname = current_database()))`,
  );
  return [
    ...functions.map(({ name }) => `PUBLIC may execute ${name}`),
    ...catalogs.map(({ name }) => `PUBLIC may read ${name}`),
    ...databases.map(({ name }) => `PUBLIC may connect to the database ${name}`),
  ];
}
