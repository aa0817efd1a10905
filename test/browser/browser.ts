import { execFile } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { mkdtemp, rename, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { type Browser, chromium, type Locator } from "playwright-core";

const extractMs = 120_000;

/** A real Chromium, headless, that asks nothing of the network by itself. Names in `.localhost` are loopback to it. */
export async function openBrowser(): Promise<Browser> {
  return chromium.launch({
    executablePath: join(await browserFolder(), "chromium"),
    headless: true,
    args: [
      "--no-sandbox",
      "--headless=new",
      "--disable-background-networking",
      "--disable-component-update",
      "--disable-default-apps",
      "--disable-sync",
      "--disable-gpu",
      "--no-first-run",
      "--no-pings",
    ],
  });
}

/**
 * The folder of the browser's files. The package extracts them into the system's temporary folder, where whoever comes second takes for whole what is still being written; so
 * it does that in a folder of its own, which then gets its name.
 */
async function browserFolder(): Promise<string> {
  const { version } = JSON.parse(readFileSync(new URL("../package.json", import.meta.resolve("@sparticuz/chromium")), "utf8")) as {
    version: string;
  };
  const folder = join(tmpdir(), `kapstone-chromium-${version}`);
  if (existsSync(folder)) return folder;
  const part = await mkdtemp(`${folder}.`);
  try {
    const extract = 'import chromium from "@sparticuz/chromium"; await chromium.executablePath();';
    const options = { cwd: import.meta.dirname, env: { ...process.env, TMPDIR: part }, timeout: extractMs };
    await promisify(execFile)(process.execPath, ["--input-type=module", "--eval", extract], options);
    await rename(part, folder);
  } catch (error) {
    await rm(part, { recursive: true, force: true });
    if (!existsSync(folder)) throw error; // another was faster
  }
  return folder;
}

/** Waits for an element of a page that came by a click, and for the rest of that page: what its forms do is in a script, which comes after them. */
export async function onceLoaded(element: Locator): Promise<Locator> {
  await element.waitFor();
  await element.page().waitForLoadState();
  return element;
}
