import { defineConfig } from "vitest/config";

/** Files that take a processor to themselves for seconds, or kill processes and tell how soon all is well: what runs beside them would be measured too. */
const alone = ["test/{attack,fault}/**/*.test.ts", "runtime/*.test.ts", "api/services/kaps/build/containment.test.ts"];

/** Every test that needs no cluster. Files share one real PostgreSQL; each file that asks for a database gets its own clone of a migrated template. */
export default defineConfig({
  test: {
    globalSetup: ["test/harness/global-setup.ts"],
    pool: "forks",
    execArgv: ["--no-node-snapshot"],
    testTimeout: 120_000, // ends what hangs; what a test waits for has a time of its own
    hookTimeout: 180_000,
    teardownTimeout: 20_000,
    projects: [
      {
        extends: true,
        test: {
          name: "together",
          include: ["{platform,api,operator,runtime,mail-ingest,local,migrations,test}/**/*.test.ts"],
          exclude: ["test/cluster/**", ...alone],
          // A file is several processes: many start a whole platform.
          maxWorkers: 2,
          sequence: { groupOrder: 0 },
        },
      },
      { extends: true, test: { name: "alone", include: alone, maxWorkers: 1, sequence: { groupOrder: 1 } } },
    ],
  },
});
