import type { Knex } from "knex";
import { scramVerifier } from "./scram.ts";
import { identifier, literal, runSql, type SqlRunner } from "./sql-text.ts";

/** The database of one kap: a schema of the platform's, and a login role that may do what it likes inside it and nothing outside. */
export interface KapDatabase {
  schemaName: string;
  roleName: string;
}

export interface KapDatabaseOptions extends KapDatabase {
  password: string;
  /** The platform's own database, in which the schema is made. */
  databaseName: string;
  /** Connections the role may hold at the same time, over all runtimes of the kap. */
  connectionLimit: number;
}

/** Connections the role of a kap may hold over all its runtimes. */
export const kapConnectionLimit = 30;

/** What the sealed password of a kap's role is bound to. */
export function kapRoleContext(kapId: string): string {
  return `kap-role:${kapId}`;
}

/** The database a connection URL names. */
export function platformDatabase(url: string): string {
  return decodeURIComponent(new URL(url).pathname.slice(1));
}

const nameForm = /^[a-z][a-z0-9_]{0,62}$/;

/**
 * Limits of a kap's sessions, as the role starts with them. A program can change those it may SET (the parser refuses it, and the host cancels
 * at the run's deadline); `temp_file_limit` holds against everyone, but only a superuser, or who was granted it, may set it.
 */
const roleSettings: Record<string, string> = {
  statement_timeout: "5s",
  lock_timeout: "3s",
  idle_in_transaction_session_timeout: "10s",
  transaction_timeout: "30s",
  work_mem: "16MB",
  maintenance_work_mem: "32MB",
  max_parallel_workers_per_gather: "0",
};
/** More than five seconds of a statement can write on most disks, so that a runaway statement ends by its time, not by this. */
const tempFileLimit = "2GB";
const dropBatch = 2_000;

/** The role through which kap roles may connect: one per platform login, so that deployments that share a server stay apart. */
function kapGroupOf(platformRole: string): string {
  return `${platformRole.slice(0, 55)}_kaps`;
}

/**
 * Makes a kap's schema and login role, or brings them to what they should be: safe to repeat. Run it in the transaction that creates the
 * kap: both appear together, or neither. The schema belongs to the platform, so the kap can neither drop it nor let others in; what the kap
 * makes inside belongs to the kap. Needs a login with CREATEROLE that owns the database; PostgreSQL 17 or later.
 */
export async function provisionKapDatabase(runner: SqlRunner, options: KapDatabaseOptions): Promise<void> {
  const { schemaName, roleName, databaseName, connectionLimit } = options;
  checkName(schemaName);
  checkName(roleName);
  const verifier = await scramVerifier(options.password);
  const group = await ensureKapGroup(runner, databaseName);
  const [found] = await runSql<{ role: boolean; may_limit_temp: boolean }>(
    runner,
    `select exists (select from pg_roles where rolname = ${literal(roleName)}) as role,
            has_parameter_privilege('temp_file_limit', 'set') as may_limit_temp`,
  );
  const attributes = `login nosuperuser nocreatedb nocreaterole noinherit noreplication nobypassrls
    connection limit ${Math.trunc(connectionLimit)} password ${literal(verifier)}`;
  const role = identifier(roleName);
  const schema = identifier(schemaName);
  const isSuperuser = await currentIsSuperuser(runner);
  // Who is not a superuser may not even say NOSUPERUSER, NOREPLICATION or NOBYPASSRLS of an existing role; new ones have none of them.
  const changed = isSuperuser ? attributes : attributes.replace(/nosuperuser|noreplication|nobypassrls/g, "");
  await runSql(runner, found?.role ? `alter role ${role} ${changed}` : `create role ${role} ${attributes}`);
  for (const [name, value] of Object.entries({ ...roleSettings, search_path: schemaName })) {
    await runSql(runner, `alter role ${role} set ${name} = ${literal(value)}`);
  }
  if (found?.may_limit_temp) await runSql(runner, `alter role ${role} set temp_file_limit = ${literal(tempFileLimit)}`);
  await runSql(runner, `grant ${identifier(group)} to ${role} with inherit true, set false`);
  await runSql(runner, `create schema if not exists ${schema}`);
  await runSql(runner, `revoke all on schema ${schema} from public`);
  await runSql(runner, `grant usage, create on schema ${schema} to ${role}`);
}

/**
 * Removes a kap's schema and role with everything they hold. Safe to repeat, also after it was interrupted. Not one transaction: a schema of
 * thousands of tables, functions or types would need more locks than the server has, so what is in it goes one by one.
 */
export async function dropKapDatabase(db: Knex, { schemaName, roleName }: KapDatabase): Promise<void> {
  checkName(schemaName);
  checkName(roleName);
  const [found] = await runSql<{ role: boolean; schema: boolean }>(
    db,
    `select exists (select from pg_roles where rolname = ${literal(roleName)}) as role,
            exists (select from pg_namespace where nspname = ${literal(schemaName)}) as schema`,
  );
  const role = identifier(roleName);
  if (found?.role) {
    await runSql(db, `alter role ${role} nologin`);
    // The role's creator may administer it, and so may let itself act with its rights: to end its sessions and drop what it owns.
    await runSql(db, `grant ${role} to current_user with inherit true, set false`);
    await runSql(db, `select pg_terminate_backend(pid) from pg_stat_activity where usename = ${literal(roleName)}`);
  }
  if (found?.schema) {
    while ((await dropContents(db, schemaName)) === dropBatch);
    await runSql(db, `drop schema if exists ${identifier(schemaName)} cascade`);
  }
  if (found?.role) {
    await runSql(db, `drop owned by ${role} cascade`);
    await runSql(db, `drop role if exists ${role}`);
  }
}

/**
 * What a kap can make in a schema, each with the statement that drops it. The youngest first, and what others inherit from last: what depends on something is
 * nearly always younger, so that no cascade takes thousands along. What belongs to another object (a sequence of an identity column) goes with that.
 */
const contentsSql = (schemaName: string): string => `
  with schema as (select oid from pg_namespace where nspname = ${literal(schemaName)}),
  contents as (
    select c.oid, case c.relkind when 'v' then 'view' when 'm' then 'materialized view' when 'S' then 'sequence' when 'c' then 'type' else 'table' end as kind,
           exists (select from pg_inherits i where i.inhparent = c.oid) as is_parent
    from pg_class c
    where c.relnamespace = (select oid from schema) and c.relkind in ('r', 'p', 'v', 'm', 'S', 'c')
      and not exists (select from pg_depend d where d.classid = 'pg_class'::regclass and d.objid = c.oid and d.objsubid = 0
                      and d.refclassid = 'pg_class'::regclass and d.deptype = 'i')
    union all
    select p.oid, 'routine', false from pg_proc p
    where p.pronamespace = (select oid from schema) and p.prokind in ('f', 'p')
      and not exists (select from pg_depend d where d.classid = 'pg_proc'::regclass and d.objid = p.oid and d.deptype = 'i')
    union all
    select t.oid, 'own type', false from pg_type t where t.typnamespace = (select oid from schema) and t.typtype in ('d', 'e', 'r')
    order by is_parent, oid desc limit ${dropBatch}
  )
  select case kind when 'routine' then 'routine if exists ' || oid::regprocedure when 'own type' then 'type if exists ' || oid::regtype
                   else kind || ' if exists ' || oid::regclass end as what
  from contents order by is_parent, oid desc`;

async function dropContents(db: Knex, schemaName: string): Promise<number> {
  const rows = await runSql<{ what: string }>(db, contentsSql(schemaName));
  // A cascade of the one before may have taken this one along.
  for (const { what } of rows) await runSql(db, `drop ${what} cascade`);
  return rows.length;
}

/**
 * Makes the group of kap roles and takes from PUBLIC what the owner of the database may take: connecting, temporary tables and the schema
 * `public`. Returns the group's name. One read when it is already so.
 */
async function ensureKapGroup(runner: SqlRunner, databaseName: string): Promise<string> {
  const state = async (): Promise<{ role: string; done: boolean } | undefined> => {
    const [row] = await runSql<{ role: string; done: boolean }>(
      runner,
      `select current_user::text as role, exists (
         select from pg_database d join pg_roles g on g.rolname = left(current_user, 55) || '_kaps'
         where d.datname = ${literal(databaseName)}
           and exists (select from aclexplode(d.datacl) a where a.grantee = g.oid and a.privilege_type = 'CONNECT')
           and not exists (select from aclexplode(d.datacl) a where a.grantee = 0)) as done`,
    );
    return row;
  };
  const before = await state();
  if (!before) throw new Error("the database did not say who is asking");
  const group = kapGroupOf(before.role);
  if (before.done) return group;
  await runSql(
    runner,
    `do $do$ begin
       perform pg_advisory_xact_lock(4207011003);
       if not exists (select from pg_roles where rolname = ${literal(group)}) then
         begin
           create role ${identifier(group)} nologin noinherit;
         exception when duplicate_object or unique_violation then null; -- roles are the server's: another database of this login made it meanwhile
         end;
       end if;
       revoke all on database ${identifier(databaseName)} from public;
       grant connect on database ${identifier(databaseName)} to ${identifier(group)};
       if has_schema_privilege(to_regnamespace('public')::oid, 'create with grant option') then
         revoke all on schema public from public;
       end if;
     end $do$`,
  );
  return group;
}

async function currentIsSuperuser(runner: SqlRunner): Promise<boolean> {
  const [row] = await runSql<{ is: boolean }>(runner, "select rolsuper as is from pg_roles where rolname = current_user");
  return row?.is ?? false;
}

function checkName(name: string): void {
  if (!nameForm.test(name)) throw new Error(`${JSON.stringify(name)} cannot name a kap's schema or role`);
}
