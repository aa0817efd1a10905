import { availableParallelism } from "node:os";
import { defineConfig } from "vitest/config";

/** Every test that needs no cluster. Files share one real PostgreSQL; each file that asks for a database gets its own clone of a migrated template. */
export default defineConfig({
  test: {
    include: ["{platform,api,operator,runtime,mail-ingest,local,migrations,test}/**/*.test.ts"],
    exclude: ["test/cluster/**", "node_modules/**"],
    globalSetup: ["test/harness/global-setup.ts"],
    pool: "forks",
    execArgv: ["--no-node-snapshot"],
    // A file is several processes: many start a whole platform. More at once than there are cores, and what a file measures or kills is the machine's doing.
    maxWorkers: Math.max(1, Math.floor(availableParallelism() / 2)),
    testTimeout: 120_000, // ends what hangs; what a test waits for has a time of its own
    hookTimeout: 180_000,
    teardownTimeout: 20_000,
  },
});
