import type { ConnectionOptions } from "node:tls";
import pg from "pg";
import type { DatabaseTls } from "./assignment.ts";

/**
 * What pg makes of a connection URL's `sslmode` and `sslrootcert` (PEM, read anew each time, as pg does for each of its connections), in a form that can be
 * sent to others who connect to the same server; undefined for plain text. A client certificate in the URL is the platform's own, and is not passed on.
 * Throws when the file cannot be read.
 */
export function databaseTls(url: string): DatabaseTls | undefined {
  const { ssl } = new pg.Client({ connectionString: url }) as { ssl: boolean | ConnectionOptions }; // never connected
  if (!ssl) return undefined;
  const { rejectUnauthorized, checkServerIdentity, ca } = ssl === true ? {} : ssl;
  const verify = rejectUnauthorized === false ? "none" : checkServerIdentity ? "ca" : "full";
  return ca === undefined ? { verify } : { verify, ca: String(ca) };
}

/** The same again for pg. The name that `full` verifies is that of the host which is connected to. */
export function sslOf(tls: DatabaseTls | undefined): false | ConnectionOptions {
  if (!tls) return false;
  return {
    ca: tls.ca,
    rejectUnauthorized: tls.verify !== "none",
    ...(tls.verify === "ca" ? { checkServerIdentity: () => undefined } : {}),
  };
}
