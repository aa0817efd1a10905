import { test } from "vitest";
import { signUpOrg } from "../harness/org.ts";
import { startTestPlatform } from "../harness/platform.ts";
import { createTransport } from "nodemailer";
import { until } from "../harness/wait.ts";
import { openMailReader } from "../../api/services/triggers/mail/mail-reader.ts";
test("bench", async () => {
  const text = "x".repeat(99).concat("\r\n").repeat(100);
  const reader = openMailReader();
  const facts = (dns: string[]) => ({envelopeFrom:"a@b.example",remoteAddress:"127.0.0.1",helo:"x",mailDomain:"mail.localhost",dnsServers:dns});
  const raw = () => new Uint8Array(Buffer.from(`From: a@b.example\r\nSubject: x\r\n\r\n${text}`));
  await reader.read(raw(), facts([]));
  for (const dns of [[], ["127.0.0.1:9"]]) {
  let t0=performance.now(); for (let i=0;i<20;i++) await reader.read(raw(), facts(dns)); console.log(dns, "one at a time ms", (performance.now()-t0)/20);
  t0=performance.now(); await Promise.all(Array.from({length:100},()=>reader.read(raw(), facts(dns)))); console.log(dns,"100 at once ms each", (performance.now()-t0)/100);
  }
  await reader.close();
}, 200000);
