/** The migrated database that test databases are cloned from. Nothing connects to it, or cloning would wait. */
export const templateDatabase = "kapstone_template";

/** `url` with another database name. */
export function databaseUrl(url: string, database: string): string {
  const changed = new URL(url);
  changed.pathname = `/${database}`;
  return changed.href;
}
