import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { denoProgram, workerdProgram } from "./handlers.ts";
import { cores, end, script, startOn } from "./processes.ts";

/** A server under measurement: where it is, and its process with everything it started. */
export interface Peer {
  name: string;
  origin: string;
  pid: number;
  close(): Promise<void>;
}

const tool = (path: string): string => fileURLToPath(new URL(`../node_modules/${path}`, import.meta.url));

/** Bare `node:http`; with a database also raw `pg`. On the measured core unless told. */
export async function startBare(databaseUrl?: string, core: string = cores.measured): Promise<Peer> {
  const { process: child, firstLine } = await startOn(core, script("bare-server.ts", ...(databaseUrl ? [databaseUrl] : [])));
  return { name: "bare node:http", origin: firstLine, pid: child.pid ?? 0, close: () => end(child) };
}

/** workerd, one process, the program inline in its configuration. */
export async function startWorkerd(): Promise<Peer> {
  const folder = await mkdtemp(join(tmpdir(), "kapstone-workerd-"));
  await writeFile(join(folder, "main.js"), workerdProgram);
  await writeFile(
    join(folder, "config.capnp"),
    `using Workerd = import "/workerd/workerd.capnp";
const config :Workerd.Config = (
  services = [(name = "main", worker = .program), (name = "internet", network = (allow = ["public", "private", "local"]))],
  sockets = [(name = "http", address = "127.0.0.1:0", http = (), service = "main")],
);
const program :Workerd.Worker = (modules = [(name = "main.js", esModule = embed "main.js")], compatibilityDate = "2026-01-01");
`,
  );
  // Its control messages, one of which names the port, go to standard output.
  const { process: child, firstLine } = await startOn(cores.measured, [
    tool("workerd/bin/workerd"),
    "serve",
    join(folder, "config.capnp"),
    "--control-fd=1",
  ]);
  const { port } = JSON.parse(firstLine) as { port: number };
  return {
    name: "workerd",
    origin: `http://127.0.0.1:${port}`,
    pid: child.pid ?? 0,
    close: async () => {
      await end(child);
      await rm(folder, { recursive: true, force: true });
    },
  };
}

/** Deno's own server. */
export async function startDeno(): Promise<Peer> {
  const folder = await mkdtemp(join(tmpdir(), "kapstone-deno-"));
  const file = join(folder, "main.js");
  await writeFile(file, denoProgram);
  const { process: child, firstLine } = await startOn(cores.measured, [tool(".bin/deno"), "run", "--allow-net", "--quiet", file], {
    DENO_NO_UPDATE_CHECK: "1",
    NO_COLOR: "1",
  });
  return {
    name: "deno",
    origin: firstLine,
    pid: child.pid ?? 0,
    close: async () => {
      await end(child);
      await rm(folder, { recursive: true, force: true });
    },
  };
}
