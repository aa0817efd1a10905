import sparticuz from "@sparticuz/chromium";
import { type Browser, chromium } from "playwright-core";

/** A real Chromium, headless, that asks nothing of the network by itself. Names in `.localhost` are loopback to it. */
export async function openBrowser(): Promise<Browser> {
  return chromium.launch({
    executablePath: await sparticuz.executablePath(),
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
