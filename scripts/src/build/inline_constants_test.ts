import { expect, test } from "bun:test";
import { declarationsIn, inline } from "./inline_constants.ts";

const declared = new Map([
  ["ffi/route/uapi.ts", new Map([["IFF_UP", "0x1"], ["AF_INET", "2"]])],
  ["ffi/route/link.ts", new Map([["IFNAMSIZ", "16"]])],
]);
const inlined = (text: string) => inline("ffi/route/link.ts", text, declared);

test("inline() replaces constants of the module itself and of those it imports, by name or as a whole", () => {
  const head = 'import { AF_INET, IFF_UP } from "./uapi.ts";\n';
  expect(inlined(`${head}f(AF_INET, IFF_UP | IFNAMSIZ, [IFF_UP]);`)).toBe(`${head}f(2, 0x1 | 16, [0x1]);`);
  const whole = 'import * as uapi from "./uapi.ts";\n';
  expect(inlined(`${whole}f(uapi.AF_INET, other.AF_INET, uapi.AF_NONE);`)).toBe(
    `${whole}f(2, other.AF_INET, uapi.AF_NONE);`,
  );
});

test("inline() tells a choice from a key", () => {
  expect(inlined("f(x ? IFNAMSIZ : 0, { IFNAMSIZ: IFNAMSIZ });")).toBe("f(x ? 16 : 0, { IFNAMSIZ: 16 });");
});

test("declarationsIn() finds numbers, as they are on that processor", () => {
  const text = [
    "export const AF_INET = 2;",
    "const AT_FDCWD = -100;",
    "const MS_SLAVE = 1 << 19;",
    "const SYS_fstat = arm ? 80 : 5;",
    'export const O_NOFOLLOW = process.arch === "arm64" ? 0o100000 : 0o400000;',
    "const TABLE = { family: 1 };",
    "const SUM = AF_INET + 1;",
    "  const INNER = 3;",
    "",
  ].join("\n");
  const same = [["AF_INET", "2"], ["AT_FDCWD", "(-100)"], ["MS_SLAVE", "(1 << 19)"]];
  expect([...declarationsIn(text, "x64")]).toEqual([...same, ["SYS_fstat", "5"], ["O_NOFOLLOW", "0o400000"]] as never);
  expect([...declarationsIn(text, "arm64")]).toEqual(
    [...same, ["SYS_fstat", "80"], ["O_NOFOLLOW", "0o100000"]] as never,
  );
});

test("inline() leaves names alone that are something else", () => {
  for (
    const text of [
      'import {\n  AF_INET,\n} from "./uapi.ts";\nf("AF_INET", `AF_INET ${AF_INET}`); // AF_INET\n/* AF_INET */',
      'import { AF_INET } from "./uapi.ts";\nf({ AF_INET: 1 }, x.AF_INET, MY_AF_INET, AF_INET6);',
      "const IFNAMSIZ = 16;\nlet IFNAMSIZ: number;",
      "f(AF_INET);",
    ]
  ) expect(inlined(text)).toBe(text);
});
