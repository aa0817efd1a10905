import { spawn } from "node:child_process";
import { afterAll, describe, expect, test } from "vitest";
import { services } from "../../api/app.ts";
import { signUp, startServices } from "../contract/auth-app.ts";

/**
 * The OpenAPI fuzzer schemathesis (PyPI) over the routes of credentials, against a running instance: no 500, no undocumented status, no answer of another
 * form than documented. It runs where KAPSTONE_SCHEMATHESIS names its executable, as in CI.
 */
const executable = process.env.KAPSTONE_SCHEMATHESIS;
/**
 * Without it the cases are the same in every run, but for what it takes up from the answers: ids, secrets, times. With it each operation gets so many,
 * and sequences of calls beside them.
 */
const examples = process.env.KAPSTONE_FUZZ_EXAMPLES;
const cases =
  examples === undefined
    ? ["--generation-deterministic", "--phases", "examples,coverage,fuzzing", "--max-examples", "4"]
    : ["--phases", "examples,coverage,fuzzing,stateful", "--max-examples", examples, "--seed", "1"];

describe.skipIf(executable === undefined)("schemathesis", async () => {
  const app = executable === undefined ? null : await startServices(services);
  afterAll(() => app?.close());

  /** Runs it with an owner's session over the paths of a pattern. */
  async function fuzz(include: string, exclude: string | null): Promise<{ code: number | null; output: string }> {
    if (!app || executable === undefined) throw new Error("no fuzzer");
    const org = await signUp(app);
    const base = `http://127.0.0.1:${app.port}`;
    const child = spawn(
      executable,
      [
        "run",
        `${base}/v1/openapi.json`,
        ...["--url", base, "--header", `Authorization: Bearer ${org.token}`, "--workers", "1", ...cases],
        ...["--checks", "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"],
        ...["--include-path-regex", include, ...(exclude === null ? [] : ["--exclude-path-regex", exclude]), "--no-color"],
      ],
      { stdio: ["ignore", "pipe", "pipe"] },
    );
    let output = "";
    for (const stream of [child.stdout, child.stderr]) {
      stream.on("data", (chunk: Buffer) => {
        output += chunk.toString();
      });
    }
    const code = await new Promise<number | null>((resolve, reject) => {
      child.on("error", reject);
      child.on("close", resolve);
    });
    return { code, output };
  }

  test("everything that leaves the fuzzer its session", async () => {
    const { code, output } = await fuzz(
      "^/v1/(auth|me|whoami|workspaces|projects|agents|apps)|^/.well-known",
      "^/v1/auth/(logout|settings|members/me)|/stream$",
    );
    expect(code, output).toBe(0);
  }, 600_000);

  test("the sign-in settings, which may take most rights away", async () => {
    const { code, output } = await fuzz("^/v1/auth/settings", null);
    expect(code, output).toBe(0);
  }, 600_000);
});
