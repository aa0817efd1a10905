import axe from "axe-core";
import type { Page } from "playwright-core";
import { expect } from "vitest";

const standard = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"];
const widths = [360, 1280];

interface Violation {
  id: string;
  help: string;
  nodes: { target: string[]; failureSummary: string }[];
}

/**
 * Holds the page as it stands against WCAG 2.2 AA: narrow and wide, light and dark. What cannot be decided by a program (axe's "incomplete") is not asked; nothing
 * may be wider than the window.
 */
export async function expectAccessible(page: Page, what: string): Promise<void> {
  await page.waitForLoadState(); // with its style: it may have come by a click, of which only the first element was waited for
  await page.evaluate(axe.source);
  for (const width of widths) {
    for (const colorScheme of ["light", "dark"] as const) {
      await page.setViewportSize({ width, height: 800 });
      await page.emulateMedia({ colorScheme, reducedMotion: "reduce" });
      const where = `${what} at ${width} px, ${colorScheme}`;
      const violations = (await page.evaluate(
        `axe.run(document, { runOnly: ${JSON.stringify(standard)}, resultTypes: ["violations"] }).then((result) => result.violations)`,
      )) as Violation[];
      const found = violations.map(({ id, help, nodes }) => ({
        id,
        help,
        nodes: nodes.map((node) => `${node.target}: ${node.failureSummary}`),
      }));
      expect(found, where).toEqual([]);
      expect(await page.evaluate("document.documentElement.scrollWidth"), where).toBeLessThanOrEqual(width);
    }
  }
}
