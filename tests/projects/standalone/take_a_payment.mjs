// A payment from start to refund, in Node 18 or newer and without packages: node take_a_payment.mjs URL API_KEY
// It ends with exit code 0 if everything went as the provider's document says.
import assert from 'node:assert/strict';
import { createHmac, randomUUID, timingSafeEqual } from 'node:crypto';
import { once } from 'node:events';
import { createServer } from 'node:http';

const [url = 'http://127.0.0.1:8400', apiKey = 'sk_test_sandbox'] = process.argv.slice(2);
const TOLERANCE = 5 * 60; // seconds that a signature stays valid

async function call(method, path, body, idempotencyKey = randomUUID()) {
  const answer = await fetch(`${url}/v1${path}`, {
    method,
    headers: {
      Authorization: `Bearer ${apiKey}`,
      ...(method === 'POST' && { 'Content-Type': 'application/json', 'Idempotency-Key': idempotencyKey }),
    },
    body: body && JSON.stringify(body),
  });
  const content = await answer.json();
  if (!answer.ok) throw new Error(`${method} ${path}: ${content.error.code}: ${content.error.message}`);
  return content;
}

// The signature covers the bytes as they came, so verify it before you parse them.
function isSigned(body, header, secret) {
  const parts = (header ?? '').split(',').map((part) => part.split('='));
  const time = parts.find(([name]) => name === 't')?.[1] ?? '';
  if (!/^[0-9]+$/.test(time) || Math.abs(Date.now() / 1000 - Number(time)) > TOLERANCE) return false;
  const expected = createHmac('sha256', secret).update(`${time}.`).update(body).digest();
  return parts.some(([name, value]) => {
    const given = Buffer.from(name === 'v1' ? value ?? '' : '', 'hex');
    return given.length === expected.length && timingSafeEqual(given, expected); // after a rotation there are two
  });
}

// The webhook: the same event may come twice and events may change places, so they are kept by id.
let secret;
const events = new Map();
const refused = [];
let changed = () => {};
const receiver = createServer(async (request, response) => {
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  const body = Buffer.concat(chunks);
  if (isSigned(body, request.headers['service-signature'], secret)) {
    const event = JSON.parse(body);
    events.set(event.id, event);
  } else {
    refused.push(body);
  }
  response.writeHead(refused.length ? 400 : 200).end();
  changed();
});

async function received(type, objectId) {
  const deadline = Date.now() + 30_000;
  for (;;) {
    assert.deepEqual(refused, [], 'a delivery has a wrong signature');
    const found = [...events.values()].find((event) => event.type === type && event.data.id === objectId);
    if (found) return found.data;
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
const webhook = `http://127.0.0.1:${receiver.address().port}/webhook`;
const endpoint = await call('POST', '/webhook-endpoints', { url: webhook });
secret = endpoint.secret; // shown only here

// The same Idempotency-Key never makes a second payment, so a request without an answer can be repeated.
const order = { amount: 14990, currency: 'CLP', country: 'CL', method_code: 'cl_webpay_card' };
const key = randomUUID();
const payment = await call('POST', '/payments', order, key);
assert.equal((await call('POST', '/payments', order, key)).id, payment.id);
await received('payment.created', payment.id);

// The payer pays: on the page at payment.checkout_url, or here by the sandbox's control interface.
const paid = await fetch(`${url}/_sandbox/payments/${payment.id}/pay`, { method: 'POST' });
assert.equal(paid.status, 200);
assert.equal((await received('payment.succeeded', payment.id)).amount_received, order.amount);

const refund = await call('POST', '/refunds', { payment_id: payment.id, amount: 990 });
assert.equal((await received('refund.succeeded', refund.id)).amount, 990);
assert.equal((await call('GET', `/payments/${payment.id}`)).refunded_amount, 990);

// What this program accepts must be signed.
const body = Buffer.from('{}');
const now = Math.floor(Date.now() / 1000);
const sign = (time, text) => createHmac('sha256', secret).update(`${time}.${text}`).digest('hex');
assert.ok(isSigned(body, `t=${now},v1=${sign(now, '{}')}`, secret));
assert.ok(isSigned(body, `t=${now},v1=${'0'.repeat(64)},v1=${sign(now, '{}')}`, secret));
const old = now - 2 * TOLERANCE;
const wrong = [undefined, '', `t=${now},v1=`, `t=${now},v1=${sign(now, '[]')}`, `t=${old},v1=${sign(old, '{}')}`];
for (const header of wrong) assert.ok(!isSigned(body, header, secret), header);

await call('DELETE', `/webhook-endpoints/${endpoint.id}`);
receiver.close();
receiver.closeAllConnections();
console.log(`${payment.id}: paid and refunded, ${events.size} signed events received`);
