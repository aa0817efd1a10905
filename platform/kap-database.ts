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
const dropBatch = 200;

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
 * thousands of tables would need more locks than the server has, so what is in it goes in batches.
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
    while ((await dropRelations(db, schemaName)) === dropBatch);
    await runSql(db, `drop schema if exists ${identifier(schemaName)} cascade`);
  }
  if (found?.role) {
    await runSql(db, `drop owned by ${role} cascade`);
    await runSql(db, `drop role if exists ${role}`);
  }
}

async function dropRelations(db: Knex, schemaName: string): Promise<number> {
  const rows = await runSql<{ name: string; kind: string }>(
    db,
    `select c.relname as name, case c.relkind when 'v' then 'view' when 'm' then 'materialized view' else 'table' end as kind
     from pg_class c join pg_namespace n on n.oid = c.relnamespace
     where n.nspname = ${literal(schemaName)} and c.relkind in ('r', 'p', 'v', 'm') and not c.relispartition limit ${dropBatch}`,
  );
  for (const { name, kind } of rows) {
    // A cascade of the one before may have taken this one along.
    await runSql(db, `drop ${kind} if exists ${identifier(schemaName)}.${identifier(name)} cascade`);
  }
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
         create role ${identifier(group)} nologin noinherit;
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
