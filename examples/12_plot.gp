# 12_plot.gp -- four pictures of the reports: gradients.png and curve.png from what 04_train_digits wrote with
# --out, growth.png and heat.png from what 12_reports wrote.
#
#     gnuplot -e "dir='build/demo'" examples/12_plot.gp
#
# Needs gnuplot 5.2 or newer with the pngcairo terminal. All numbers come from the CSV files. The colours are
# those of Okabe and Ito, which colour-blind readers can tell apart.

if (!exists("dir")) dir = 'build/demo'
set datafile separator ','
set encoding utf8
set terminal pngcairo size 1600,900 font 'Sans,19' background rgb 'white'
set tics nomirror out scale 0.7 textcolor rgb '#222222'
set title font 'Sans Bold,24' textcolor rgb '#222222' offset 0,0.7
set border 3 lw 1.5 lc rgb '#444444'
set style fill solid 0.85 noborder
unset key
orange = '#D55E00'; blue = '#0072B2'; green = '#009E73'; yellow = '#E69F00'; grey = '#777777'

# ---- gradients.png: the paper's picture, from the activation gradients of the digits network ----

binades = dir . '/binades.csv'
range = dir . '/range.csv'
stats range using 3 every ::1 nooutput
count = STATS_max
stats range using 4 every ::1 nooutput
zero = STATS_max
stats range using 5 every ::1 nooutput
flushed = STATS_max
stats range using 14 every ::1 nooutput
best = STATS_max
stats range using ($15 + $16) every ::1 nooutput
verdict = STATS_max == 0 ? 'is the smallest that loses nothing' : 'loses least'
nonzero = count - zero
stats binades using 1 every ::1 nooutput
left = STATS_min; right = 19
stats binades using 1:(100.0 * $2 / nonzero) every ::1 nooutput
highest = STATS_max_y; peak = STATS_pos_max_y + 0.5
top = 1.45 * highest
set output dir . '/gradients.png'
set title sprintf("FP16 makes zeros of %.0f%% of these gradients; a loss scale of 2^{%.0f} " . \
    "brings them back", 100.0 * flushed / nonzero, best)
set border 1
set xrange [left:right]
set yrange [0:top]
unset ytics
set xlabel sprintf("magnitude of activation gradient × loss scale, digits network; height: share of " . \
    "the nonzero (%.0f%% are 0)", 100.0 * zero / count) offset 0,-0.4
set format x '2^{%.0f}'
set xtics 4
set margins 3, 3, 4.7, 4
set object 1 rectangle from left, 0 to -25, top fc rgb '#DCDCDC' fs solid noborder behind
set object 2 rectangle from -25, 0 to -14, top fc rgb '#FFF4D1' fs solid noborder behind
set object 3 rectangle from -14, 0 to 16, top fc rgb '#E3F4EC' fs solid noborder behind
set object 4 rectangle from 16, 0 to right, top fc rgb '#DCDCDC' fs solid noborder behind
middle(a, b) = (a + b) / 2.0
head = "font 'Sans Bold,21'"
high = 0.95 * top; low = 0.90 * top
set label 1 'becomes 0' at middle(left, -25), high center @head textcolor rgb '#444444'
set label 2 'subnormal' at middle(-25, -14), high center @head textcolor rgb '#6B5000'
set label 3 'bits are lost' at middle(-25, -14), low center textcolor rgb '#6B5000'
set label 4 'FP16 normal' at middle(-14, 16), high center @head textcolor rgb '#00664E'
set label 5 'full precision' at middle(-14, 16), low center textcolor rgb '#00664E'
set label 6 'Inf' at middle(16, right), high center @head textcolor rgb '#444444'
set label 7 'no scale' at peak - 0.8, 0.97 * highest right @head textcolor rgb '#A34700'
set label 8 sprintf('loss scale 2^{%.0f}', best) at peak + best, highest + 0.03 * top center @head \
    textcolor rgb '#005A8F'
do for [edge in "-25 -14 16"] {
    set arrow from edge + 0, 0 to edge + 0, top nohead lw 1.5 dt 2 lc rgb grey
}
set boxwidth 0.9
plot binades using ($1 + 0.5):(100.0 * $2 / nonzero) every ::1 with boxes lc rgb orange, \
     binades using ($1 + best + 0.5):(100.0 * $2 / nonzero) every ::1 with boxes lc rgb blue
unset output
unset object
unset arrow
unset label

# ---- curve.png: what each scale would lose ----

curve = dir . '/curve.csv'
set output dir . '/curve.png'
set title sprintf("Every loss scale judged by one histogram: 2^{%.0f} %s", best, verdict) offset -3.5,0.7
set border 3
set xrange [-10:46]
set yrange [0:105]
set ytics nomirror 0,20,100
set format y '%.0f%%'
set format x '2^{%.0f}'
set xlabel 'loss scale (same gradients as in gradients.png)' offset 0,-0.4
set ylabel 'share of the nonzero gradients, in FP16'
set margins 11, 4, 4.7, 4
set arrow 1 from best, 0 to best, 100 nohead lw 2 dt 2 lc rgb grey
set label 1 'become 0' at -9, 60 textcolor rgb orange font 'Sans Bold,21' front
set label 2 "subnormal:\nbits are lost" at 4, 60 textcolor rgb '#A97900' font 'Sans Bold,21' front
set label 3 'overflow' at 42, 60 right textcolor rgb blue font 'Sans Bold,21' front
set label 4 sprintf('chosen: 2^{%.0f}', best) at best - 0.5, 103 right textcolor rgb '#444444'
plot curve using 1:(100 * $2) every ::1 with filledcurves y1=0 fs transparent solid 0.2 lc rgb orange, \
     curve using 1:(100 * $2) every ::1 with lines lw 4 lc rgb orange, \
     curve using 1:(100 * $3) every ::1 with lines lw 4 lc rgb yellow, \
     curve using 1:(100 * $4) every ::1 with filledcurves y1=0 fs transparent solid 0.2 lc rgb blue, \
     curve using 1:(100 * $4) every ::1 with lines lw 4 lc rgb blue
unset output
unset arrow
unset label

# ---- growth.png: the error of one sum in eight accumulators ----

growth = dir . '/growth.csv'
set output dir . '/growth.png'
set title 'The same sum: an FP16 accumulator stops, FP32 drifts, careful FP32 stays' offset 11,0.7
set logscale x 2
set logscale y 10
set xrange [16:1048576]
set yrange [1e-9:3]
set format x '2^{%L}'
set format y '10^{%L}'
set xtics 16,16,1048576
set ytics nomirror 1e-9,10,1
set mytics 1
set xlabel 'number of terms, each between 0 and 1' offset 0,-0.4
set ylabel 'relative error of the sum (1: nothing of it is left)'
array method[7] = ['f16', 'bf16', 'f32', 'f32 in blocks', 'Kahan', 'Neumaier', 'pairwise']
rows(n) = sprintf("< awk -F, '$2 == \"%s\"' %s", method[n], growth)
colour(n) = n == 1 ? 0xD55E00 : n == 2 ? 0xE69F00 : n == 3 ? 0x0072B2 : n == 4 ? 0x56B4E9 \
          : n == 5 ? 0x009E73 : n == 6 ? 0x777777 : 0xCC79A7
set key outside right center reverse Left samplen 2 font 'Sans,19'
set margins 11, 33, 4.7, 4
title(n) = n == 1 ? 'FP16' : n == 2 ? 'BF16' : n == 3 ? 'FP32' : n == 4 ? 'FP32 in blocks of 256' \
         : n == 7 ? 'FP32 pairwise' : n == 5 ? 'FP32, Kahan' : 'FP32, Neumaier'
width(n) = n == 5 ? 9 : 3           # Kahan and Neumaier often agree: one is drawn around the other
plot for [n = 1:7] rows(n) using 3:($8 > 1e-9 ? $8 : 1e-9) \
    with linespoints lw width(n) pt 7 ps 0.8 lc rgb colour(n) title title(n)
unset output
unset logscale
unset key

# ---- heat.png: which layer loses its gradients, and when ----

heat = dir . '/heat.csv'
set output dir . '/heat.png'
set title 'The layers next to the input lose most: share of gradients that FP16 makes zero' offset 7,0.7
set xrange [*:*]
set yrange [*:*]
stats heat using 1 every ::1 nooutput
last = STATS_max
stats heat using 2 every ::1 nooutput
layers = STATS_max
set border 0
set xrange [-5:last + 5]
set yrange [0.5:layers + 0.5]
set format x '%.0f'
set format y '%.0f'
set xtics 0,50,last
set ytics nomirror 1,1,layers
set xlabel 'training step' offset 0,-0.4
set ylabel 'layer (1 is next to the input)'
set cbrange [0:*]
set format cb '%.0f%%'
set margins 11, 14, 4.7, 4
set palette defined (0 '#F7F7F7', 0.3 '#FBD9A0', 0.6 '#E69F00', 0.8 '#D55E00', 1 '#7A1F00')
plot heat using 1:2:3 every ::1 with image
unset output
