import { expect, test } from "bun:test";
import fc from "fast-check";
import { processorMs } from "../testing/fuzz.ts";
import { locate, parseJson, stringifyJson } from "./jsonc.ts";

for (
  const [text, value] of [
    ['{"a":1,"a":2}', { a: 2 }],
    ['// c\n{"a": [1, 2,], /* , */ }', { a: [1, 2] }],
    ['{"a":"// no, /* comment */ ,}"}', { a: "// no, /* comment */ ,}" }],
    ['{"a":"\\"//",}', { a: '"//' }],
    ['\ufeff{"a":1}', { a: 1 }],
    ['{"a":1} // end', { a: 1 }],
    ["[1,// one\n2 /* two */ , /* three */]", [1, 2]],
    ["[true,]", [true]],
    ["[[],]", [[]]],
  ] as [string, unknown][]
) {
  test(`parseJson() reads ${JSON.stringify(text)}`, () => {
    expect(parseJson(text)).toEqual(value);
  });
}

for (
  const [text, message] of [
    ['{"a":1} x', "Cannot parse JSON:1:9: invalid symbol"],
    ['{"a":1}{}', "Cannot parse JSON:1:8: end of file expected"],
    ["", "Cannot parse JSON:1:1: value expected"],
    ['{\n  "ipam": {\n    "a" 1\n  }\n}', "Cannot parse JSON:3:9, in ipam.a: colon expected"],
    ['{"plugins":[{"mtu":x}]}', "Cannot parse JSON:1:20, in plugins[0].mtu: invalid symbol"],
    ["{'a':1}", "Cannot parse JSON:1:2: invalid symbol"],
    ['{"a":1 "b":2}', "Cannot parse JSON:1:8, in b: comma expected"],
    ['{"a":01}', "Cannot parse JSON"],
    ["[,]", "Cannot parse JSON:1:2"],
    ["[1,,]", "Cannot parse JSON:1:4"],
    ["{,}", "Cannot parse JSON:1:2"],
    ["/* open", "Cannot parse JSON:1:1"],
    ['"open', "Cannot parse JSON:1:1"],
    ['{"a":"\t"}', "Cannot parse JSON"],
    ["[".repeat(50_000), "Cannot parse JSON"],
  ]
) {
  test(`parseJson() refuses ${JSON.stringify(text).slice(0, 50)}`, () => {
    let thrown: unknown;
    try {
      parseJson(text);
    } catch (error) {
      thrown = error;
    }
    expect(thrown).toBeInstanceOf(SyntaxError);
    expect((thrown as Error).message).toStartWith(message);
  });
}

test("parseJson() names its source", () => {
  expect(() => parseJson("{", "/etc/cni/net.d/a.conflist")).toThrow("Cannot parse /etc/cni/net.d/a.conflist:1:2");
});

for (
  const text of [
    '{"a":9007199254740993,"b":[12345678901234567890,-9007199254740993]}',
    '{"a":1.0,"b":[-0,1E5,-2.50,0.1],"c":1500.0}',
    '{"a":1e400,"b":[-2E-400,1E+999]}',
    '{"a":0.10000000000000000001}',
    '{"a":9007199254740991,"b":"9007199254740993"}',
    '{"a":123456789012345680000}',
  ]
) {
  test(`parseJson() keeps the numbers of ${text}`, () => {
    expect(stringifyJson(parseJson(text))).toBe(text);
    expect(stringifyJson(parseJson(`${text} // c`))).toBe(text);
  });
}

test("parseJson() leaves numbers a double holds as numbers", () => {
  expect(parseJson('{"a":9007199254740991,"b":1234567890123456}')).toEqual({
    a: 9007199254740991,
    b: 1234567890123456,
  });
});

test("parseJson() and stringifyJson() undo each other", () => {
  fc.assert(fc.property(fc.jsonValue(), fc.nat(4), (value, indent) => {
    expect(parseJson(stringifyJson(value, indent))).toEqual(JSON.parse(JSON.stringify(value)));
  }));
});

test("parseJson() reads the same with comments and trailing commas", () => {
  const gap = fc.constantFrom("", " ", "\n", "/* , ] */", '// "\n', "/**/ ");
  fc.assert(fc.property(fc.jsonValue(), fc.infiniteStream(gap), fc.boolean(), (value, gaps, trailing) => {
    const plain = JSON.stringify(value, null, 1); // its line breaks stand between tokens only
    const text = trailing ? plain.replace(/([^[{,\s])\n( *[}\]])/g, "$1,\n$2") : plain;
    const commented = text.replace(/\n/g, () => `${gaps.next().value}\n${gaps.next().value}`);
    expect(parseJson(commented)).toEqual(JSON.parse(plain));
  }));
});

test.each(['{"a":1} /* open', '{"a":1} /*/', '{"a":"open }', "/*"])(
  "parseJson() refuses %s, which is not closed",
  (text) => {
    expect(() => parseJson(text)).toThrow("Cannot parse JSON:1:");
  },
);

test.each(['"\\', '/* "', ", ", '[",'])("parseJson() of a million times %j takes time in proportion", (piece) => {
  const text = piece.repeat(1_000_000 / piece.length);
  const started = processorMs();
  expect(() => parseJson(text)).toThrow(SyntaxError);
  // Looked for anew from every place, what is not closed would take minutes.
  expect(processorMs() - started).toBeLessThan(3000);
});

test("parseJson() of random text returns or throws SyntaxError", () => {
  const piece = fc.constantFrom(
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    '"',
    '"a"',
    "1",
    "//",
    "/*",
    "*/",
    "\n",
    "\\",
    "null",
    "1234567890123456789",
  );
  fc.assert(
    fc.property(fc.array(piece, { maxLength: 12 }), (pieces) => {
      const text = pieces.join("");
      try {
        parseJson(text);
      } catch (error) {
        expect(error).toBeInstanceOf(SyntaxError);
      }
    }),
    { numRuns: 2000 },
  );
});

test("stringifyJson() escapes what the ecosystem escapes", () => {
  expect(stringifyJson({ a: "<&>\u2028\u2029é" }, 4)).toBe('{\n    "a": "\\u003c\\u0026\\u003e\\u2028\\u2029é"\n}');
});

const document = `{
  // the network
  "name": "web",
  "name": "web2",
  "plugins": [
    { "type": "bridge", "ipam": { "ranges": [[{ "subnet": "x" }]] } },
    { "cni.dev/a": 1 },
  ],
}`;
for (
  const [path, line, column] of [
    ["", 1, 1],
    ["name", 4, 11],
    ["plugins[0].type", 6, 15],
    ["plugins[0].ipam.ranges[0][0].subnet", 6, 59],
    ["plugins[0].ipam.type", 6, 33],
    ['plugins[1]["cni.dev/a"]', 7, 20],
    ["plugins[7]", 5, 14],
    ["missing", 1, 1],
  ] as [string, number, number][]
) {
  test(`locate() finds "${path}"`, () => {
    expect(locate(document, path)).toEqual({ line, column });
  });
}
