import pg from "pg";
import { hardenDatabase } from "./harden-database.ts";

const connectMs = 10_000;
const lockId = 4_207_011_004; // any constant: the one lock under which the platform's database is prepared

/**
 * Makes the platform's login and its database where they are missing, sets the login's password and rights to what they should be, and closes in that
 * database what only a superuser can close. Safe to repeat; several at the same time wait for each other. `adminUrl` is a superuser's login on the same server; `url` the platform's own.
 */
export async function preparePlatformDatabase(adminUrl: string, url: string): Promise<void> {
  const { username, password, pathname } = new URL(url);
  const login = decodeURIComponent(username);
  const database = decodeURIComponent(pathname.slice(1));
  const inside = new URL(adminUrl);
  inside.pathname = pathname;
  await withClient(adminUrl, async (admin) => {
    await admin.query("select pg_advisory_lock($1)", [lockId]); // until this connection ends
    const { rowCount: logins } = await admin.query("select from pg_roles where rolname = $1", [login]);
    const verb = logins === 0 ? "create" : "alter";
    const secret = pg.escapeLiteral(decodeURIComponent(password));
    await admin.query(`${verb} role ${pg.escapeIdentifier(login)} login createrole createdb nosuperuser password ${secret}`);
    const { rowCount: databases } = await admin.query("select from pg_database where datname = $1", [database]);
    if (databases === 0) await admin.query(`create database ${pg.escapeIdentifier(database)} owner ${pg.escapeIdentifier(login)}`);
    await admin.query(`revoke all on database ${pg.escapeIdentifier(database)} from public`);
    await hardenPlatformDatabase(inside.href, login);
  });
}

/** Closes to everybody what only a superuser can close in the database that `adminUrl` names, and gives the platform's login what it needs of it. */
export async function hardenPlatformDatabase(adminUrl: string, platformRole: string): Promise<void> {
  await withClient(adminUrl, (admin) => hardenDatabase(admin, { platformRole }));
}

async function withClient(url: string, work: (client: pg.Client) => Promise<void>): Promise<void> {
  const client = new pg.Client({ connectionString: url, connectionTimeoutMillis: connectMs });
  client.on("error", () => undefined); // said by the statement that was under way
  await client.connect();
  try {
    await work(client);
  } finally {
    await client.end();
  }
}
