import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";

/** Where this process's own code lies: the source folder, or the folder of bundled files in an image. The only place that knows. */
const home = new URL("./", import.meta.url);

const inHome = (name: string): string => fileURLToPath(new URL(name, home));

/** The child's entry: `child.js` beside a bundled supervisor, else the source. */
export const childEntry = (): string => (existsSync(inHome("child.js")) ? inHome("child.js") : inHome("child.ts"));

/** The guest kit: bundled ahead (`guest.js`, as images do) or null when it must be made from `guestSource`. */
export const bundledGuest = (): string | null => (existsSync(inHome("guest.js")) ? inHome("guest.js") : null);

export const guestSource = (): string => inHome("guest/main.ts");
