import { afterEach, expect, test } from "vitest";
import { type BoardEntry, BoardWriter, closeBoard, openBoard, readBoard } from "./flight-board.ts";

const open: number[] = [];
afterEach(() => {
  for (const fd of open.splice(0)) closeBoard(fd);
});

function board(): { fd: number; writer: BoardWriter } {
  const fd = openBoard();
  open.push(fd);
  return { fd, writer: new BoardWriter(fd) };
}

const id = (n: number): string => `00000000-0000-7000-8000-${String(n).padStart(12, "0")}`;
const entry = (n: number): BoardEntry => ({
  runId: id(n),
  startedAt: 1,
  enteredAt: 2,
  timeoutMs: 5_000,
  wallDeadline: 9,
  cpuMs: 1.5,
  cpuBudgetMs: 4_000,
  cpuClockMs: 77.25,
});
const turn = (): Promise<void> => new Promise((resolve) => setImmediate(() => setImmediate(resolve)));
const states = (fd: number): string[] => readBoard(fd).map((run) => `${run.slot} ${run.state}`);

test("an entry is on the board before it returns, and takes earlier ends with it, near and far", () => {
  const { fd, writer } = board();
  writer.enter(0, entry(0));
  expect(states(fd)).toEqual(["0 running"]);
  writer.end(0, "ok", 200, 3, 1);
  writer.enter(1, entry(1));
  expect(states(fd)).toEqual(["0 ended", "1 running"]);
  writer.end(1, "error", 500, 3, 1);
  writer.enter(900, entry(2));
  expect(states(fd)).toEqual(["0 ended", "1 ended", "900 running"]);
  expect(readBoard(fd)[1]).toMatchObject({ id: id(1), outcome: "error", httpStatus: 500, endedAt: 3 });
});

test("ends without another entry are on the board after the turn of the event loop", async () => {
  const { fd, writer } = board();
  for (const slot of [3, 40]) writer.enter(slot, entry(slot));
  for (const slot of [3, 40]) writer.end(slot, "ok", 200, 3, 1);
  await turn();
  expect(states(fd)).toEqual(["3 ended", "40 ended"]);
});

test("an end inside an entry is on the board at once, and the isolate counts as busy until the entry is left", async () => {
  const { fd, writer } = board();
  writer.enter(7, entry(7));
  writer.end(7, "error", 500, 3, 1);
  writer.endInside(7);
  writer.release(7);
  // Whatever else is written meanwhile does not free it.
  writer.enter(8, entry(8));
  await turn();
  expect(readBoard(fd)[0]).toMatchObject({ slot: 7, state: "ended", isInside: true, outcome: "error", httpStatus: 500 });
  writer.left();
  await turn();
  expect(states(fd)).toEqual(["8 running"]);
});

test("all runs that ended inside one entry are off the board when it is left, whoever's it was", async () => {
  const { fd, writer } = board();
  for (const slot of [1, 500, 1_000]) writer.enter(slot, entry(slot));
  for (const slot of [1, 500]) {
    writer.end(slot, "error", 500, 3, 1);
    writer.endInside(slot);
    writer.release(slot);
  }
  expect(readBoard(fd).filter((run) => run.isInside)).toHaveLength(2);
  writer.left();
  await turn();
  expect(states(fd)).toEqual(["1000 running"]);
});

test("a slot tells what its run has used, and nothing of the run before", () => {
  const { fd, writer } = board();
  writer.enter(4, entry(4));
  expect(readBoard(fd)[0]).toMatchObject({ cpuMs: 1.5, cpuBudgetMs: 4_000, cpuClockMs: 77.25, timeoutMs: 5_000, wallDeadline: 9 });
  writer.end(4, "ok", 200, 3, 250);
  writer.flush();
  expect(readBoard(fd)[0]).toMatchObject({ cpuMs: 250 });
  writer.release(4);
  writer.queue(4, id(5), 6);
  expect(readBoard(fd)[0]).toMatchObject({ id: id(5), state: "queued", cpuMs: 0 });
});
