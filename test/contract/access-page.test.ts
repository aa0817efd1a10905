import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { accessPage } from "../../scripts/document-access.ts";

test("docs/access.md says what the route table says: run `npm run docs` after changing it", () => {
  expect(readFileSync(new URL("../../docs/access.md", import.meta.url), "utf8")).toBe(accessPage());
});
