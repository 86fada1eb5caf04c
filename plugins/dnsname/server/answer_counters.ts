/** Who answered questions, counted for metrics. */
export type AnswerKind = "own" | "cache" | "resolver" | "failure" | "refused";

export interface AnswerCounters {
  add(answer: AnswerKind): void;
  deadline(): number;
  expire(): void;
  flush(): void;
}

const REPORT_MS = 1000;

export function newAnswerCounters(report: (answer: AnswerKind, count: number) => void): AnswerCounters {
  const counts = new Map<AnswerKind, number>();
  let dueAt = Infinity;
  const flush = () => {
    for (const [answer, count] of counts) report(answer, count);
    counts.clear();
    dueAt = Infinity;
  };
  return {
    add(answer) {
      counts.set(answer, (counts.get(answer) ?? 0) + 1);
      if (dueAt === Infinity) dueAt = performance.now() + REPORT_MS;
    },
    deadline: () => dueAt,
    expire: () => void (dueAt <= performance.now() && flush()),
    flush,
  };
}
