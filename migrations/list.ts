import type { Migration } from "#platform/migrate.ts";
import * as platform from "./0001_platform.ts";
import * as kaps from "./0002_kaps.ts";

/** All migrations in order. A list, not a folder read at run time, so that a bundled process carries them. */
export const migrations: readonly Migration[] = [
  { name: "0001_platform", up: platform.up },
  { name: "0002_kaps", up: kaps.up },
];
