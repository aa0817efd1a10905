import { afterAll, beforeAll, expect, test } from "vitest";
import { composeAssignment, signAssignment } from "../../api/gateway/assignment.ts";
import { control } from "../../api/gateway/runtime-client.ts";
import { newId } from "../../platform/ids.ts";
import { signUpOrg } from "../harness/org.ts";
import { startTestPlatform, type TestPlatform } from "../harness/platform.ts";
import { until } from "../harness/wait.ts";

let platform: TestPlatform;
beforeAll(async () => {
  platform = await startTestPlatform();
});
afterAll(() => platform?.close());

test("a runtime that was claimed by a process which died before it wrote that down ends by itself, and the kap is served by another", async () => {
  const { deps } = platform.platform.api;
  const kap = await (await signUpOrg(platform)).createKap(`export default () => new Response("served");`);
  const [candidate] = await until(async () => {
    const candidates = await deps.pool.candidates();
    return candidates.length > 0 && candidates;
  });
  if (!candidate) throw new Error("no runtime is warm");
  const stateOf = () => control(candidate.control, "GET", "/state", undefined, 5_000);
  const { boot_id } = (await stateOf()).body as { boot_id: string };
  // As the api claims, but no row knows the runtime's id or token.
  const assignment = await composeAssignment(deps, kap.id, { id: newId(), token: "known-to-nobody" });
  const claimed = await control(candidate.control, "POST", "/claim", signAssignment(deps.config.claimKey, assignment), 10_000);
  expect(claimed.status).toBe(200);
  await until(() =>
    stateOf().then(
      ({ body }) => (body as { boot_id?: string }).boot_id !== boot_id,
      () => true,
    ),
  );
  expect((await kap.call({ path: "/" })).text).toBe("served");
});
