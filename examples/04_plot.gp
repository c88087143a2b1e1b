# 04_plot.gp -- draws three pictures from the files that `04_train_digits --out DIR` writes. histogram.png:
# the magnitudes of the gradients of three runs. curve.png: what each loss scale would have done to the
# gradients of the run without a scale. accuracy.png: the test accuracy of all eight configurations.
#
#     gnuplot -e "dir='build/demo'" examples/04_plot.gp
#
# Needs gnuplot 5.2 or newer with the pngcairo terminal. All numbers come from results.csv, histogram.csv and
# curve.csv, and cover all seeds. The colours are those of Okabe and Ito, which colour-blind readers can tell
# apart.

if (!exists("dir")) dir = 'build/demo'
results = dir . '/results.csv'
hist = dir . '/histogram.csv'
curve = dir . '/curve.csv'

set datafile separator ','
set encoding utf8
set terminal pngcairo size 1600,900 font 'Sans,19' background rgb 'white'
set tics nomirror out scale 0.7 textcolor rgb '#222222'
set title font 'Sans Bold,24' textcolor rgb '#222222' offset 0,0.7
set style fill solid 0.85 noborder
unset key

orange = '#D55E00'; blue = '#0072B2'; green = '#009E73'; yellow = '#A97900'; grey = '#777777'

# The configurations, in the order of the printed table. nth(s) is the position of the one with the id s.
id(n) = word("fp32 fp16_x1 fp16_x8 fp16_x128 fp16_x1024 fp16_dynamic bf16 fp16_no_master", n)
nth(s) = sum [n = 1:8] (s eq id(n) ? n : 0)
FP32 = nth('fp32'); X1 = nth('fp16_x1'); X1024 = nth('fp16_x1024'); DYNAMIC = nth('fp16_dynamic')

# Per configuration, over all seeds: test accuracy, percentage of gradients lost, log2 of the final scale.
array average[8]
array least[8]
array most[8]
array lost[8]
array scale[8]
do for [n = 1:8] {
    stats results using (strcol(1) eq id(n) ? 100 * $3 : NaN) every ::1 nooutput
    average[n] = STATS_mean; least[n] = STATS_min; most[n] = STATS_max
    stats results using (strcol(1) eq id(n) ? 100 * $4 : NaN) every ::1 nooutput
    lost[n] = STATS_mean
    stats results using (strcol(1) eq id(n) ? log($7) / log(2) : NaN) every ::1 nooutput
    scale[n] = STATS_mean
}

# ---- histogram.png: the gradients against FP16's window ----

# The exponents at which the zones of FP16 begin: 0 becomes zero, 1 subnormal, 2 normal, 3 overflow.
array zone[4]
do for [z = 0:3] {
    stats hist using ($5 == z ? $1 : NaN) every ::1 nooutput
    zone[z + 1] = STATS_min
}
stats hist using 1 every ::1 nooutput
left = zone[1]; right = STATS_max + 1
middle(a, b) = (a + b) / 2.0

# Height and position of the highest bar in column c of the histogram; labels are placed above that bar.
array peak[4]
array peak_at[4]
do for [c = 2:4] {
    stats hist using (column(c)) every ::1 nooutput
    peak[c] = STATS_max
    stats hist using 1:(column(c)) every ::1 nooutput
    peak_at[c] = STATS_pos_max_y + 0.5
}
top = 1.5 * peak[2]

set output dir . '/histogram.png'
set title sprintf("FP16 alone turns %.0f%% of these gradients into zero; a loss scale saves them", lost[X1])
set border 1 lw 1.5 lc rgb '#444444'
set xrange [left:right]
set yrange [0:top]
set xlabel 'magnitude of activation gradient × loss scale; height: share of those that are not 0' \
    offset 0,-0.4
set format x '2^{%.0f}'
set xtics 4
unset ytics
set margins 3, 3, 4.7, 4

set object 1 rectangle from left, 0 to zone[2], top fc rgb '#DCDCDC' fs solid noborder behind
set object 2 rectangle from zone[2], 0 to zone[3], top fc rgb '#FFF4D1' fs solid noborder behind
set object 3 rectangle from zone[4], 0 to right, top fc rgb '#DCDCDC' fs solid noborder behind
do for [z = 2:4] {
    set arrow z from zone[z], 0 to zone[z], top nohead lw 1.5 dt 2 lc rgb grey
}
high = 0.95 * top; low = 0.90 * top
set label 1 'becomes 0' at middle(left, zone[2]), high center font 'Sans Bold,21' textcolor rgb '#444444'
set label 2 'FP16 subnormal' at middle(zone[2], zone[3]), high center font 'Sans Bold,21' \
    textcolor rgb '#6B5000'
set label 3 'bits are lost' at middle(zone[2], zone[3]), low center textcolor rgb '#6B5000'
set label 4 'FP16 normal' at middle(zone[3], zone[4]), high center font 'Sans Bold,21' textcolor rgb '#444444'
set label 5 'full precision' at middle(zone[3], zone[4]), low center textcolor rgb '#444444'
set label 6 'Inf' at middle(zone[4], right), high center font 'Sans Bold,21' textcolor rgb '#444444'

note(n) = sprintf(lost[n] < 10 ? "%.1f%% become 0\ntest accuracy %.0f%%" : "%.0f%% become 0\n" . \
    "test accuracy %.0f%%", lost[n], average[n])
down = 0.044 * top
x = middle(left, zone[2]) - 0.5; y = 0.9 * peak[2]              # beside the bars, inside the zone
set label 7 'no scale' at x, y center font 'Sans Bold,21' textcolor rgb '#A34700'
set label 8 note(X1) at x, y - down center textcolor rgb '#A34700'
x = middle(zone[2], zone[3]); y = peak[3] + 0.125 * top         # above the bars
set label 9 'scale 1024' at x, y center font 'Sans Bold,21' textcolor rgb '#005A8F'
set label 10 note(X1024) at x, y - down center textcolor rgb '#005A8F'
x = peak_at[4] - 4; y = peak[4] + 0.125 * top
set label 11 sprintf("dynamic scale, in the end 2^{%.0f}", scale[DYNAMIC]) at x, y center \
    font 'Sans Bold,21' textcolor rgb '#00664E'
set label 12 note(DYNAMIC) at x, y - down center textcolor rgb '#00664E'

set boxwidth 0.9
plot hist using ($1 + 0.5):4 every ::1 with boxes lc rgb green, \
     hist using ($1 + 0.5):2 every ::1 with boxes lc rgb orange, \
     hist using ($1 + 0.5):3 every ::1 with boxes lc rgb blue
unset output
unset object
unset arrow
unset label

# ---- curve.png: what each scale would have lost of the unscaled run's gradients ----

# Shares of one in a million matter, so the axis is logarithmic; 0 is drawn below the dotted line, at "none".
# A gradient counts as lost if it becomes 0, loses bits or overflows. The scales that lose least are marked.
stats curve using ($2 + $3 + $4) every ::1 nooutput
least_lost = STATS_min
stats curve using ($2 + $3 + $4 <= least_lost ? $1 : NaN) every ::1 nooutput
best = STATS_min; last = STATS_max
stats curve using ($2 + $3 + $4 > 0 ? $2 + $3 + $4 : NaN) every ::1 nooutput
cut = 10 ** floor(log10(STATS_min)); floor_at = cut / 4
share(x) = 100 * (x > 0 ? x : floor_at)
set output dir . '/curve.png'
set title sprintf("2^{%.0f} is the smallest loss scale that loses %s of the unscaled run's gradients", best, \
    least_lost > 0 ? 'least' : 'nothing') offset -4.5,0.7
set border 3 lw 1.5 lc rgb '#444444'
set logscale y 10
set xrange [-10:46]
set yrange [100 * floor_at / 2:300]
set xtics 4
set ytics nomirror add ('none' 100 * floor_at, '100%%' 100, '10%%' 10, '1%%' 1, '0.1%%' 0.1, '0.01%%' 0.01, \
    '0.001%%' 0.001, '0.0001%%' 0.0001, '0.00001%%' 0.00001)
set xlabel 'loss scale that the same gradients would have had' offset 0,-0.4
set ylabel 'share of the nonzero gradients, in FP16'
set margins 15, 4, 4.7, 4
set object 1 rectangle from best, 100 * floor_at to last, 100 fc rgb '#E3F4EC' fs solid noborder behind
set arrow 1 from -10, 100 * cut / 1.6 to 46, 100 * cut / 1.6 nohead lw 1 dt 3 lc rgb grey back
head = "font 'Sans Bold,21' front"
set label 1 'become 0' at -9, 25 textcolor rgb '#A34700' @head
set label 2 "subnormal:\nbits are lost" at 15, 60 textcolor rgb yellow @head
set label 3 'overflow' at 43, 0.03 center textcolor rgb '#005A8F' @head
set label 4 sprintf("2^{%.0f} to 2^{%.0f}:\n%s is lost", best, last, \
    least_lost > 0 ? 'least' : 'nothing') at (best + last) / 2.0, 20 center textcolor rgb '#00664E'
plot curve using 1:(share($3)) every ::1 with linespoints lw 4 pt 7 ps 0.7 lc rgb yellow, \
     curve using 1:(share($2)) every ::1 with linespoints lw 4 pt 7 ps 0.7 lc rgb orange, \
     curve using 1:(share($4)) every ::1 with linespoints lw 4 pt 7 ps 0.7 lc rgb blue
unset output
unset logscale
unset object
unset arrow
unset label
unset ylabel

# ---- accuracy.png: one bar per configuration ----

name(n) = n == 1 ? 'FP32' : n == 2 ? "FP16\nno scale" : n == 3 ? "FP16\nscale 8" \
        : n == 4 ? "FP16\nscale 128" : n == 5 ? "FP16\nscale 1024" : n == 6 ? "FP16\ndynamic scale" \
        : n == 7 ? "BF16\nno scale" : "FP16, no\nFP32 masters"
colour(n) = n == FP32 ? 0x777777 : average[n] < average[FP32] - 10 ? 0xD55E00 : 0x0072B2

set output dir . '/accuracy.png'
set title sprintf("FP32 reads %.0f%% of the digits, FP16 alone %.0f%%, FP16 with a loss scale %.0f%%", \
                  average[FP32], average[X1], average[DYNAMIC]) offset 0,0.7
set border 0
set xrange [0.45:8.55]
set yrange [0:106]
set xlabel 'test accuracy: mean over the seeds (bar, number), least and most (whisker); dashed: FP32' \
    offset 0,-2.3
unset xtics
unset ytics
set margins 3, 3, 6, 4
do for [n = 1:8] {
    set label n name(n) at n, -4 center textcolor rgb '#222222'
    set label 10 + n sprintf("%.1f%%", average[n]) at n, most[n] + 3.8 center font 'Sans Bold,21' \
        textcolor rgb colour(n)
    set arrow 10 + n from n, least[n] to n, most[n] heads size 0.05,90 lw 2.5 lc rgb '#222222' front
}
set arrow 1 from 0.5, average[FP32] to 8.5, average[FP32] nohead dt 2 lw 1.5 lc rgb grey back
set arrow 2 from 0.5, 0 to 8.5, 0 nohead lw 1.5 lc rgb '#444444' front
set boxwidth 0.7
plot for [n = 1:8] '+' using (n):(average[n]):(colour(n)) every ::0::0 with boxes lc rgb variable
