import { existsSync } from "node:fs";
import { entryFile, programFile } from "#platform/program-files.ts";

/** The child's entry. */
export const childEntry = (): string => entryFile("runtime/child");

const readyGuest = programFile("runtime/guest.js");

/** The guest kit: bundled ahead (as images do) or null when it must be made from `guestSource`. */
export const bundledGuest = (): string | null => (existsSync(readyGuest) ? readyGuest : null);

export const guestSource = (): string => programFile("runtime/guest/main.ts");
