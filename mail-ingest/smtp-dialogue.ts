import { EventEmitter, once } from "node:events";
import { connect, type Socket } from "node:net";

/** For tests: an SMTP client that says exactly the bytes it is told to. */
export interface Dialogue {
  socket: Socket;
  /** Sends a line, or lines, and answers with the server's next reply. */
  ask(line: string): Promise<string>;
  /** Sends bytes as they are; waits when the server does not take them. */
  send(bytes: string | Buffer): Promise<void>;
  /** The next reply, its lines joined by a blank; null when the server has hung up. */
  reply(): Promise<string | null>;
  /** HELO, MAIL and RCPT for every address; answers the replies to RCPT. */
  begin(recipients: string[], from?: string): Promise<string[]>;
  close(): void;
}

/** Connects and reads the greeting. */
export async function openDialogue(port: number): Promise<Dialogue & { greeting: string | null }> {
  const socket = connect(port, "127.0.0.1");
  const replies: string[] = [];
  let text = "";
  let isClosed = false;
  const news = new EventEmitter();
  socket.on("data", (chunk) => {
    text += chunk.toString("latin1");
    for (
      let match = /^(?:\d{3}-[^\n]*\n)*\d{3}(?: [^\n]*)?\n/.exec(text);
      match;
      match = /^(?:\d{3}-[^\n]*\n)*\d{3}(?: [^\n]*)?\n/.exec(text)
    ) {
      replies.push(match[0].trim().replaceAll("\r\n", " "));
      text = text.slice(match[0].length);
    }
    news.emit("change");
  });
  socket.on("drain", () => news.emit("change"));
  socket.on("error", () => undefined);
  socket.on("close", () => {
    isClosed = true;
    news.emit("change");
  });
  const dialogue: Dialogue = {
    socket,
    async reply() {
      while (replies.length === 0 && !isClosed) await once(news, "change");
      return replies.shift() ?? null;
    },
    async send(bytes) {
      socket.write(bytes);
      while (socket.writableNeedDrain && !isClosed) await once(news, "change");
    },
    async ask(line) {
      await dialogue.send(`${line}\r\n`);
      return (await dialogue.reply()) ?? "closed";
    },
    async begin(recipients, from = "sender@example.com") {
      await dialogue.ask("EHLO client.example.com");
      await dialogue.ask(`MAIL FROM:<${from}>`);
      const answers: string[] = [];
      for (const recipient of recipients) answers.push(await dialogue.ask(`RCPT TO:<${recipient}>`));
      return answers;
    },
    close: () => void socket.destroy(),
  };
  return { ...dialogue, greeting: await dialogue.reply() };
}
