// Expiry, a retry and a magic value in seconds instead of hours, in a project of its own, in Node 18 or newer and
// without packages: node travel_in_time.mjs URL. It ends with exit code 0 if every delivery was as the provider's
// document says.
import assert from 'node:assert/strict';
import { createHmac, randomUUID, timingSafeEqual } from 'node:crypto';
import { once } from 'node:events';
import { createServer } from 'node:http';

const [url = 'http://127.0.0.1:8400'] = process.argv.slice(2);
const apiKey = `sk_test_${randomUUID()}`; // one project for each test worker: projects share nothing
const TOLERANCE = 5 * 60; // seconds that a signature stays valid

async function send(method, path, body) {
  const answer = await fetch(`${url}${path}`, {
    method,
    headers: {
      Authorization: `Bearer ${apiKey}`,
      'Content-Type': 'application/json',
      'Idempotency-Key': randomUUID(),
    },
    body: body && JSON.stringify(body),
  });
  const content = await answer.json();
  if (!answer.ok) throw new Error(`${method} ${path}: ${content.error.param ?? ''} ${content.error.message}`);
  return content;
}

const advance = (seconds) => send('POST', '/_sandbox/clock', { advance: seconds });

function isSigned(body, header, secret) {
  const parts = (header ?? '').split(',').map((part) => part.split('='));
  const time = parts.find(([name]) => name === 't')?.[1] ?? '';
  if (!/^[0-9]+$/.test(time) || Math.abs(Date.now() / 1000 - Number(time)) > TOLERANCE) return false;
  const expected = createHmac('sha256', secret).update(`${time}.`).update(body).digest();
  return parts.some(([name, value]) => {
    const given = Buffer.from(name === 'v1' ? value ?? '' : '', 'hex');
    return given.length === expected.length && timingSafeEqual(given, expected);
  });
}

let secret;
let status = 200; // of the answers
const deliveries = [];
let changed = () => {};
const receiver = createServer(async (request, response) => {
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  const body = Buffer.concat(chunks);
  const isGood = isSigned(body, request.headers['service-signature'], secret);
  deliveries.push({ isGood, body: body.toString(), event: JSON.parse(body) });
  response.writeHead(isGood ? status : 400).end();
  changed();
});

// The deliveries of an event type about an object, as soon as there are so many.
async function received(type, objectId, count = 1) {
  const deadline = Date.now() + 30_000;
  for (;;) {
    assert.ok(deliveries.every(({ isGood }) => isGood), 'a delivery has a wrong signature');
    const found = deliveries.filter(({ event }) => event.type === type && event.data.id === objectId);
    if (found.length >= count) return found;
    const left = deadline - Date.now();
    assert.ok(left > 0, `${type} did not come`);
    await new Promise((resolve) => {
      const timer = setTimeout(resolve, left);
      changed = () => { clearTimeout(timer); resolve(); };
    });
  }
}

receiver.listen(0, '127.0.0.1');
await once(receiver, 'listening');
await send('POST', '/_sandbox/projects', { api_key: apiKey });
const webhook = `http://127.0.0.1:${receiver.address().port}/webhook`;
secret = (await send('POST', '/v1/webhook-endpoints', { url: webhook })).secret;

// A payment by card expires after an hour. Its event is dated then, and signed now.
const order = { amount: 14990, currency: 'CLP', country: 'CL', method_code: 'cl_webpay_card' };
const unpaid = await send('POST', '/v1/payments', order);
await received('payment.created', unpaid.id);
await advance(3700);
const [expired] = await received('payment.expired', unpaid.id);
assert.ok(Date.parse(expired.event.created_at) - Date.now() > 3_500_000);

// What was not acknowledged comes again after a minute, with the same body and a new signature.
status = 500;
const other = await send('POST', '/v1/payments', order);
await received('payment.created', other.id);
while ((await send('GET', '/_sandbox/deliveries?status=500')).data.length === 0) { /* the sandbox notes it at once */ }
status = 200;
await advance(61);
const [first, again] = await received('payment.created', other.id, 2);
assert.equal(again.body, first.body);

// A magic value: this payment is declined by itself.
const declined = await send('POST', '/v1/payments', { ...order, payer: { email: 'declined@sandbox.example' } });
await advance(3);
await received('payment.failed', declined.id);

// As it was at first: the clock, the objects, the endpoints.
await send('DELETE', `/_sandbox/projects/${apiKey}`);
assert.equal((await send('GET', '/v1/payments')).data.length, 0);
assert.ok(Math.abs(Date.parse((await send('GET', '/_sandbox/clock')).now) - Date.now()) < 60_000);
receiver.close();
receiver.closeAllConnections();
console.log(`${unpaid.id}: expired; ${other.id}: delivered again; ${declined.id}: declined`);
