-- publish: put jobs into their lanes; an id that waits in a lane or is leased is refused. Allowed while rebuilding.
-- KEYS[1] meta; ARGV[1..7] see lib/context
-- ARGV[8..] queue, lane, score, body, ... : score = -priority, -101 at the head; body = 16 bytes id, task number, cost (4 bytes each)
-- Returns 'lost' | 'moved' | a text with one letter per job: P published, W it waits already, L it is leased
-- Keeps: a lane with work is in the ring or parked. The lane joins before the job is in its line, the job is in its line before its id
-- is known: after a script that died it may be published twice, never not at all.
--- include context
--- include queue
--- include lane
--- include ring
--- include wake
local ids, words, waits, lines, order, placed = {}, {}, {}, {}, {}, {}
for i = 8, #ARGV, 4 do ids[#ids + 1] = string.sub(ARGV[i + 3], 1, 16) end
if #ids == 0 then return '' end
local known = call('HMGET', root .. 'jobs', unpack(ids))

-- the batch of a lane in this call; the lane joins when its first job comes
local function batch_of(name, lane, cost)
  local key = name .. ':' .. lane
  local batch = lines[key]
  if not batch then
    local queue = open_queue(name)
    batch = { queue = queue, lane = lane }
    local parked = call('HEXISTS', queue.parked, lane) == 1
    if not parked then
      if call('HEXISTS', queue.place, lane) == 0 then join(queue, lane, cost) end
      stirred[name] = true
    end
    lines[key], order[#order + 1] = batch, batch
  end
  return batch
end

for n, id in ipairs(ids) do
  local i = 4 + 4 * n
  if known[n] then
    words[n] = known[n] == 'w' and 'W' or 'L'
  elseif placed[id] then
    words[n] = 'W'
  else
    local batch = batch_of(ARGV[i], ARGV[i + 1], struct.unpack('>I4', ARGV[i + 3], 21))
    batch[#batch + 1] = ARGV[i + 2]
    batch[#batch + 1] = struct.pack('>I8', next_arrival(batch.queue)) .. ARGV[i + 3]
    batch.queue.waiting = batch.queue.waiting + 1
    placed[id], words[n] = true, 'P'
    waits[#waits + 1], waits[#waits + 2] = id, 'w'
  end
end
if #waits > 0 then
  for name in pairs(opened) do call('SADD', root .. 'queues', name) end
  for _, batch in ipairs(order) do call('ZADD', batch.queue.line .. batch.lane, unpack(batch)) end
  call('HSET', root .. 'jobs', unpack(waits))
end
close_queues()
stir_all()
return table.concat(words)
